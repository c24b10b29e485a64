"""Arrays that are too large to be read: their files are mapped into memory instead.

Pages come from the disk when they are looked at, and are dropped when memory is short.
An array of an npz file can be mapped where it is stored as it is (`numpy.savez` stores,
`numpy.savez_compressed` packs).
"""

import pathlib
import struct
import zipfile
import zlib
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

LARGE = 2**28  # bytes: smaller arrays are read
_CHUNK = 2**24  # bytes that are checked at a time
_LOCAL_HEADER = 30  # bytes before a member's name, whose length is among the last four
_ENCRYPTED = 1


def map_member(
    path: pathlib.Path, archive: zipfile.ZipFile, name: str
) -> NDArray[np.generic] | None:
    """The array of that name in an npz file; None if it has to be read.

    Its checksum is compared first, as reading would do.
    """
    info = archive.getinfo(name)
    stored = info.compress_type == zipfile.ZIP_STORED
    if not stored or info.flag_bits & _ENCRYPTED or info.file_size < LARGE:
        return None
    with open(path, "rb") as file:
        file.seek(info.header_offset)
        header = file.read(_LOCAL_HEADER)
        if len(header) < _LOCAL_HEADER:
            raise zipfile.BadZipFile(f"no header of {name}")
        lengths = struct.unpack("<HH", header[-4:])
        start = info.header_offset + _LOCAL_HEADER + sum(lengths)
        file.seek(start)
        _check(file, info)
        file.seek(start)
        return _map_array(file)


def _check(file: BinaryIO, info: zipfile.ZipInfo) -> None:
    """Refuses a member whose bytes have changed."""
    found, left = 0, info.file_size
    while left and (part := file.read(min(_CHUNK, left))):
        found, left = zlib.crc32(part, found), left - len(part)
    if left or found != info.CRC:
        raise zipfile.BadZipFile(f"bad checksum of {info.filename}")


def map_file(path: pathlib.Path) -> NDArray[np.generic]:
    """The array of an npy file, mapped if it is large."""
    with open(path, "rb") as file:
        if path.stat().st_size < LARGE:
            return np.lib.format.read_array(file, allow_pickle=False)
        return _map_array(file)


def _map_array(file: BinaryIO) -> NDArray[np.generic]:
    """The array that begins here."""
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"unknown version {version} of the npy format")
    shape, by_columns, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, not numbers")
    return np.memmap(
        file, dtype, "r", file.tell(), shape, order="F" if by_columns else "C"
    )
