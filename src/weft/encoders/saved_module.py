"""What weft's own modules of a sentence-transformers model share: they are saved as a configuration and weights."""

from __future__ import annotations

from typing import Any, Self

from sentence_transformers.base.modules import Module


class SavedModule(Module):
    """A module whose `config_keys` are the arguments of its constructor."""

    def save(self, output_path: str, *_: Any, safe_serialization: bool = True, **__: Any) -> None:
        """Write config.json and the weights."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **hub: Any) -> Self:  # type: ignore[override]
        """Read what `save` wrote, from a folder or the hub."""
        allowed = ("token", "cache_folder", "revision", "local_files_only")
        where = {"subfolder": subfolder} | {key: hub[key] for key in allowed if key in hub}
        module = cls(**cls.load_config(model_name_or_path=model_name_or_path, **where))
        loaded = cls.load_torch_weights(model_name_or_path=model_name_or_path, model=module, **where)
        assert isinstance(loaded, cls)
        return loaded
