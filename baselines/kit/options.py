"""Base class of the options of backbones and methods."""

from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """Options that never change; an unknown one is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")
