"""Error of wrappers without a form in tensors, separate from modules that are slow to import."""


class NoTensorFormError(TypeError):
    """A wrapper has no form in tensors, so that the host steps the environments.

    Its message is shown as the reason. Other errors of a `tensor_form` end the run.
    """
