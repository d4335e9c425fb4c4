"""Bodies of requests and answers."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maze_pl.serving.decoding import JSON, NPZ, decoded, encoded
from maze_pl.serving.request_error import RequestError

N_ARRAYS = 100  # that a request may need


def archive(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def test_arrays_of_an_archive_become_fields() -> None:
    body = archive(**{"observation/x": np.arange(6.0).reshape(2, 3), "step_key": 1, "deterministic": False})
    content = decoded(body, NPZ, N_ARRAYS)
    assert content["observation"]["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert content["step_key"] == 1
    assert content["deterministic"] is False


def test_an_archive_of_an_answer_has_the_same_arrays() -> None:
    answer = {"action": {"turn": np.array([1, 2])}, "state": {"memory": np.ones((2, 3), np.float32)}}
    with np.load(io.BytesIO(encoded(answer, NPZ))) as found:
        assert sorted(found) == ["action/turn", "state/memory"]
        assert found["state/memory"].dtype == np.float32
        np.testing.assert_array_equal(found["action/turn"], [1, 2])


def test_json_has_no_numbers_that_are_not_finite() -> None:
    answer = {"parameters": {"turn": np.array([0.5, -np.inf, np.nan])}, "action": {"turn": np.int64(2)}}
    assert json.loads(encoded(answer, JSON)) == {"parameters": {"turn": [0.5, None, None]}, "action": {"turn": 2}}


def compressed() -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, x=np.zeros(1_000_000))
    return stream.getvalue()


def huge_header() -> bytes:
    """An archive whose array claims to have 8 TB."""
    npy = io.BytesIO()
    np.lib.format.write_array_header_1_0(npy, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("x.npy", npy.getvalue())
    return stream.getvalue()


def pickled() -> bytes:
    npy = io.BytesIO()
    np.lib.format.write_array(npy, np.array([{}], object), allow_pickle=True)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("x.npy", npy.getvalue())
    return stream.getvalue()


def with_header(header: str) -> bytes:
    """An archive whose array has a header that is not a dict of NumPy."""
    padded = header.encode().ljust(117) + b"\n"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded)
    return stream.getvalue()


def overlapping() -> bytes:
    """An archive whose directory names the same array of 80 kB a hundred times."""
    body = archive(x=np.zeros(10_000))
    start = body.index(b"PK\x01\x02")
    end = body.index(b"PK\x05\x06")
    entry = body[start:end]
    directory = b"".join(entry.replace(b"x.npy", f"{n:05}".encode()) for n in range(100))
    numbers = struct.pack("<HHII", 100, 100, len(directory), start)
    return body[:start] + directory + body[end : end + 8] + numbers + b"\x00\x00"


def far_away() -> bytes:
    """An archive whose directory places its array behind 2**63 bytes."""
    body = archive(x=np.zeros(3))
    start = body.index(b"PK\x01\x02")
    end = body.index(b"PK\x05\x06")
    entry = bytearray(body[start:end])
    entry[30:32] = struct.pack("<H", 12)  # bytes of the extra field, which has the place of 64 bits
    entry[42:46] = b"\xff" * 4
    directory = bytes(entry) + struct.pack("<HHQ", 1, 8, 2**63 + 5)
    numbers = struct.pack("<HHII", 1, 1, len(directory), start)
    return body[:start] + directory + body[end : end + 8] + numbers + b"\x00\x00"


@pytest.mark.parametrize(
    ("body", "kind", "status", "message"),
    [
        (b"{", JSON, 400, "not valid JSON"),
        (b"\xff", JSON, 400, "not valid JSON"),
        (b"[" * 100_000, JSON, 400, "not valid JSON"),
        (b'{"x": ' + b"9" * 10_000 + b"}", JSON, 400, "not valid JSON"),
        (b"[]", JSON, 422, "must be a JSON object, not list"),
        (b"", "text/plain", 415, "content type 'text/plain' must be application/json or application/x-npz"),
        (b"PK", NPZ, 400, "not a valid archive"),
        (compressed(), NPZ, 422, "'x.npy' is compressed"),
        (huge_header(), NPZ, 422, "'x' has 0 bytes, which do not fit its shape (1000000000000,)"),
        (pickled(), NPZ, 422, "'x' holds Python objects"),
        (overlapping(), NPZ, 400, "its entries have 8012800 bytes, the body has 8"),
        (far_away(), NPZ, 400, "not a valid archive of numpy.savez: "),
        (
            archive(**{f"x{n}": 1 for n in range(117)}),
            NPZ,
            422,
            "the archive has more than 116 arrays; leave out those",
        ),
        (archive(observation=np.ones(2)), NPZ, 422, "observation is an array, expected one for each entry"),
        (archive(**{"state": np.ones(2), "state/x": np.ones(2)}), NPZ, 422, "state is an array, expected one"),
        (archive(**{"state/x": np.ones(2), "state": 1}), NPZ, 422, "named state/<name>"),
        (with_header("((("), NPZ, 400, "'x' has an invalid header"),
        (with_header("{[]:1}"), NPZ, 400, "'x' has an invalid header"),
        (with_header("  1\n 2"), NPZ, 400, "'x' has an invalid header"),
    ],
)
def test_invalid_bodies_are_refused(body: bytes, kind: str, status: int, message: str) -> None:
    with pytest.raises(RequestError) as error:
        decoded(body, kind, N_ARRAYS)
    assert error.value.status == status
    assert message in str(error.value)


def test_an_archive_may_have_some_arrays_more_than_a_request_needs() -> None:
    assert len(decoded(archive(**{f"x{n}": 1 for n in range(116)}), NPZ, N_ARRAYS)) == 116


def test_an_archive_of_very_many_arrays_is_refused_before_its_directory_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = archive(**{f"x{n}": 1 for n in range(200)})
    monkeypatch.delattr(zipfile, "ZipFile")
    with pytest.raises(RequestError, match=r"more than 116 arrays"):
        decoded(body, NPZ, N_ARRAYS)


@given(st.binary(max_size=300), st.sampled_from([JSON, NPZ]))
def test_no_body_raises_another_error_than_a_refusal(body: bytes, kind: str) -> None:
    try:
        decoded(body, kind, N_ARRAYS)
    except RequestError as error:
        assert error.status in (400, 422)
