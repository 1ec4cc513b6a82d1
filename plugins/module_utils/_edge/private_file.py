# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A file with a secret in it: its owner alone may read it, from the first byte on."""

from __future__ import annotations

import pathlib

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.report_page import files

MODE = 0o600


class PlaceError(RuntimeError):
    """The file cannot be read, written or deleted; the text names it and the cause, never its content."""


class PrivateFile:
    """The file at a path, which need not exist yet."""

    def __init__(self, path: str) -> None:
        self._path = pathlib.Path(path).expanduser().absolute()
        self.path = str(self._path)

    def read(self) -> str:
        """What is in it, empty if it does not exist, may be read by others, or is not text.

        Raises:
            PlaceError: it is there and cannot be read.
        """
        try:
            # One that others may read is written anew, with another token.
            return self._path.read_text(encoding="utf-8") if self._path.stat().st_mode & 0o077 == 0 else ""
        except (FileNotFoundError, UnicodeDecodeError):
            return ""
        except OSError as error:
            raise self._refused("read", error) from None

    def write(self, text: str) -> None:
        """Put this text there, at once.

        Raises:
            PlaceError: that is not possible.
        """
        try:
            files.write(self._path, text, MODE)
        except OSError as error:
            raise self._refused("written", error) from None

    def remove(self) -> None:
        """Delete it, if it exists.

        Raises:
            PlaceError: that is not possible.
        """
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise self._refused("deleted", error) from None

    def _refused(self, done: str, error: OSError) -> PlaceError:
        why = error.strerror or type(error).__name__
        return PlaceError(f"{self.path} cannot be {done}: {why}. Give another path as dest.")
