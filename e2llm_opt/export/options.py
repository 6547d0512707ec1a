"""What a plan does not say and an export needs: addresses, files, names of devices in an engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.export.addresses import parsed
from e2llm_opt.export.names import unprintable

if TYPE_CHECKING:
    from collections.abc import Mapping

DynamoApi = Literal["v1alpha1", "v1beta1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Facts beside the plan.

    Parameters
    ----------
    model_path
        File, folder or Hugging Face name of the model, as every device sees it.
    tokenizer_path
        Of distributed-llama.
    addresses
        ``HOST`` or ``HOST:PORT`` of a device, by its name. Devices of one host share its address.
    engine_devices
        What the engine calls a device on its own host: ``CUDA0``, ``MTL0``, ``CPU``.
    image
        Container image, for engines that run in containers.
    dynamo_api
        Version of the custom resource.

    Raises
    ------
    InputError
        When an address is none, or a text holds what no file can.
    """

    model_path: str = ""
    tokenizer_path: str = ""
    addresses: Mapping[str, str] = field(default_factory=dict)
    engine_devices: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    dynamo_api: DynamoApi = "v1alpha1"

    def __post_init__(self) -> None:
        """Refuse what is no address, path or name."""
        faults = [
            Fault(
                path=f"address of {device}",
                wrong=f"{text!r} is no address",
                right="HOST or HOST:PORT, such as 10.0.0.2:8080",
            )
            for device, text in self.addresses.items()
            if parsed(text) is None
        ]
        texts = {
            "model path": self.model_path,
            "tokenizer path": self.tokenizer_path,
            "image": self.image,
            **{f"engine device of {key}": name for key, name in self.engine_devices.items()},
        }
        faults += [
            Fault(path=path, wrong="holds a character that no file can hold")
            for path, text in texts.items()
            if unprintable(text)
        ]
        if self.dynamo_api not in get_args(DynamoApi):
            versions = " or ".join(get_args(DynamoApi))
            faults.append(Fault(path="dynamo_api", wrong="unknown version", right=versions))
        if faults:
            raise InputError(faults)
