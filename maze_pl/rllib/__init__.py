"""Training with RLlib: its algorithms on the environments, networks, distributions and masks of maze_pl.

Adapters of environments and networks belong here, and the module and data module that run RLlib's
algorithms; everything else of a run does not. Importing this package imports neither Ray nor RLlib.
"""

from .rllib_appo import RLlibAPPO as RLlibAPPO
from .rllib_data_module import RLlibDataModule as RLlibDataModule
from .rllib_dqn import RLlibDQN as RLlibDQN
from .rllib_module import RLlibModule as RLlibModule
from .rllib_ppo import RLlibPPO as RLlibPPO
