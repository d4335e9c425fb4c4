"""Random numbers and instances of Taillard's benchmark.

E. Taillard 1993, Benchmarks for basic scheduling problems, European Journal of Operational
Research 64(2), pp. 278-285: section 2 (generator), section 6 and table 6 (seeds of job shops).
"""

from __future__ import annotations

from maze_pl.envs.job_shop.instance import JobShopInstance

_MODULUS = 2**31 - 1
_FACTOR = 16807

_SIZES = ((15, 15), (20, 15), (20, 20), (30, 15), (30, 20), (50, 15), (50, 20), (100, 20))
"""Jobs and machines of each group of ten."""

# fmt: off
_TIME_SEEDS = (
    840612802, 1314640371, 1227221349, 342269428, 1603221416,
    1357584978, 44531661, 302545136, 1153780144, 73896786,
    533484900, 1894307698, 874340513, 1124986343, 1463788335,
    1056908795, 195672285, 961965583, 1610169733, 532794656,
    1035939303, 5997802, 1357503601, 806159563, 1902815253,
    1503184031, 1032645967, 229894219, 823349822, 1297900341,
    98640593, 1839268120, 573875290, 1670898570, 1118914567,
    178750207, 1549372605, 798174738, 553410952, 1661531649,
    1841414609, 2116959593, 796392706, 532496463, 2020525633,
    524444252, 1569394691, 1460267840, 198324822, 38071822,
    17271, 660481279, 352229765, 1197518780, 1376020303,
    2106639239, 1765352082, 1105092880, 907248070, 2011630757,
    8493988, 1991925010, 342093237, 1634043183, 341706507,
    320167954, 1089696753, 433032965, 615974477, 236150141,
    302034063, 1437643198, 1792475497, 1647273132, 696480901,
    1785569423, 117806902, 1639154709, 2007423389, 682761130,
)
_MACHINE_SEEDS = (
    398197754, 386720536, 316176388, 1806358582, 1501949241,
    1734077082, 1374316395, 2092186050, 1393392374, 1544979948,
    317419073, 1474268163, 509669280, 1209573668, 529048107,
    25321885, 1717580117, 1353003786, 1734469503, 998486810,
    773961798, 1872541150, 722225039, 1166962073, 1879990068,
    1850351876, 99711329, 1158117804, 108033225, 489486403,
    1981283465, 248890888, 2081512253, 788294565, 1074349202,
    294279708, 596993084, 151685779, 1329272528, 1173386294,
    1357882888, 1546338557, 1230864158, 254174057, 978943053,
    185526083, 487269855, 1631446539, 1937476577, 1541985579,
    718939, 449650254, 949737911, 166840558, 483922052,
    955932362, 1209982549, 1349003108, 919544535, 1845447001,
    2738939, 709517751, 786960785, 973178279, 286513148,
    1411193018, 298068750, 1589656152, 331205412, 592292984,
    1203569070, 1692025209, 1039908559, 1012841433, 1689682358,
    1092647459, 739059626, 1319962509, 749368241, 262763021,
)
# fmt: on


class TaillardGenerator:
    """Linear congruential generator: X <- 16807 X mod (2^31 - 1).

    Args:
        seed: X_0, from 1 to 2^31 - 2.

    Raises:
        ValueError: The seed is out of range.

    Example:
        >>> generator = TaillardGenerator(840612802)
        >>> [generator.integer(1, 99) for _ in range(4)]
        [94, 66, 10, 53]
    """

    def __init__(self, seed: int) -> None:
        if not 0 < seed < _MODULUS:
            raise ValueError(f"{seed=} of Taillard's generator must be from 1 to {_MODULUS - 1}")
        self.state = seed

    def integer(self, low: int, high: int) -> int:
        """Draw a whole number from low to high: low + floor(X / (2^31 - 1) * (high - low + 1))."""
        self.state = _FACTOR * self.state % _MODULUS
        return low + int(self.state / _MODULUS * (high - low + 1))


def generate_taillard(
    name: str,
    n_jobs: int,
    n_machines: int,
    time_seed: int,
    machine_seed: int,
    lower_bound: int | None = None,
    best_known: int | None = None,
) -> JobShopInstance:
    """Generate a job shop whose jobs visit each machine once, with durations uniform in 1 to 99.

    Durations are drawn job by job; then each job's order of machines is shuffled by exchanging the
    machine of each position with that of a random position from there on.

    Args:
        name: Name of the instance.
        n_jobs: Number of jobs.
        n_machines: Number of machines.
        time_seed: Seed of durations.
        machine_seed: Seed of orders of machines.
        lower_bound: Published lower bound of the makespan.
        best_known: Best published makespan.
    """
    times = TaillardGenerator(time_seed)
    places = TaillardGenerator(machine_seed)
    jobs: list[list[list[tuple[int, int]]]] = []
    for _ in range(n_jobs):
        durations = [times.integer(1, 99) for _ in range(n_machines)]
        jobs.append([[(machine, duration)] for machine, duration in enumerate(durations)])
    for job in jobs:
        machines = list(range(n_machines))
        for position in range(n_machines):
            other = places.integer(position, n_machines - 1)
            machines[position], machines[other] = machines[other], machines[position]
        for operation, machine in zip(job, machines, strict=True):
            operation[0] = (machine, operation[0][1])
    return JobShopInstance.of(name, n_machines, jobs, lower_bound, best_known)


def taillard_instance(number: int, lower_bound: int | None = None, best_known: int | None = None) -> JobShopInstance:
    """Return one of the instances ta01 to ta80.

    Args:
        number: 1 to 80.
        lower_bound: Published lower bound of the makespan.
        best_known: Best published makespan.

    Raises:
        ValueError: There is no instance of this number.
    """
    if not 1 <= number <= len(_TIME_SEEDS):
        raise ValueError(f"there is no instance ta{number:02d}; Taillard's job shops are ta01 to ta80")
    n_jobs, n_machines = _SIZES[(number - 1) // 10]
    time_seed = _TIME_SEEDS[number - 1]
    machine_seed = _MACHINE_SEEDS[number - 1]
    return generate_taillard(f"ta{number:02d}", n_jobs, n_machines, time_seed, machine_seed, lower_bound, best_known)
