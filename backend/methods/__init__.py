"""Length methods, each in a file of its own: what this folder holds is offered by settings, page, terminal and API."""
from backend.methods.base import LengthMethod
from backend.registry import Registry

__all__ = ["LengthMethod", "methods"]

methods: Registry[LengthMethod] = Registry(__name__, LengthMethod)
