"""Base class of the options of backbones and methods, and the types of their numbers."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1)]
ShareBelowOne = Annotated[float, Field(ge=0, lt=1)]
ShareAboveZero = Annotated[float, Field(gt=0, le=1)]


class Options(BaseModel):
    """Options that never change; an unknown one is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")
