"""Bytes that a person may have written and no reader takes: each was a traceback or a warning
somewhere, once.

The property tests begin with these, so that none comes back by luck alone.
"""

from __future__ import annotations

from typing import Final

DEEP: Final = 3000

YAML: Final = {
    "an anchor twice": "&x{&x",
    "an anchor twice, well formed": "a: &x 1\nb: &x 2\n",
    "an anchor twice in a list": "- &x {}\n- &x {}\n",
    "a mantissa without a dot": "%YAML 1.1\n---\n- 1e3\n",
    "an octal of YAML 1.1": "%YAML 1.1\n---\n- 0o9\n",
    "a sexagesimal that is none": "%YAML 1.1\n---\n- 1:99:x\n",
    "a version that is none": "%YAML 9.9\n---\na\n",
    "a version of letters": "%YAML x.y\n---\na\n",
    "a directive without an end": "%TAG ! tag:x,2000:\n",
    "hexadecimal of nothing": "- 0x\n- 0b\n- 0o\n",
    "an exponent of nothing": "- 1e\n- -.e\n",
    "an integer that is none": "!!int x",
    "an integer of a list": "!!int [1]",
    "a float that is none": "!!float x",
    "a boolean that is none": "!!bool x",
    "bytes that are none": "!!binary x\u00e9",
    "a date that is none": "!!timestamp 2026-13-45",
    "a set of a list": "!!set [a]",
    "an ordered map of a map": "!!omap {a: b}",
    "a map of a scalar": "!!map x",
    "a tag of nobody": "!!python/object:os.system x",
    "an alias of nobody": "*x",
    "an alias of itself": "&x [*x]",
    "a merge of itself": "&x {<<: *x}",
    "a merge of a scalar": "{<<: 1}",
    "a key that is a list": "{[a]: b}",
    "a key that is itself": "&x {*x : 1}",
    "a key twice": "a: 1\na: 2\n",
    "an escape beyond unicode": '"\\UFFFFFFFF"',
    "an escape of half a surrogate": '"\\ud800"',
    "an escape of nothing": '"\\x',
    "a control character": "a: \x01\n",
    "a NUL": "a\0b",
    "a byte-order mark inside": "a: \ufeffb",
    "a tab that indents": "a:\n\tb: c\n",
    "a very long integer": "9" * 5000,
    "a very long hexadecimal": "0x" + "f" * 5000,
    "very deep": "[" * DEEP,
    "very deep maps": "{a: " * DEEP,
    "very deep blocks": "- " * DEEP,
    "many complex keys": "? " * DEEP,
}
"""Documents, none of which is a manifest."""

BYTES: Final = {
    "no UTF-8": b"a: \xff\xfe\n",
    "half a surrogate": b"a: \xed\xa0\x80\n",
    "UTF-16": "a: b\n".encode("utf-16"),
    "cut in a character": "a: \u00e9".encode()[:-1],
}

JSON: Final = {
    "nothing": "",
    "half": '{"a":',
    "deep": "[" * DEEP + "]" * DEEP,
    "very deep": '{"a":' * 100_000,
    "a very long integer": "9" * 5000,
    "a very long integer inside": '{"a": ' + "9" * 5000 + "}",
    "an endless number": '{"a": 1e999}',
    "no number": '{"a": NaN}',
    "half a surrogate": '{"a": "\\ud800"}',
    "a surrogate as a key": '{"\\udfff": 1}',
    "a key twice": '{"a": 1, "a": 2}',
    "a NUL": '{"a": "\0"}',
}

TOML: Final = {
    "a very long integer": "[agent]\n  x = " + "9" * 5000,
    "deep": "x = " + "[" * DEEP,
    "deep tables": "x = " + "{a = " * DEEP,
    "deep keys": ".".join("a" * DEEP) + " = 1",
    "no UTF-8": "x = '\udcff'",
    "half a surrogate": 'x = "\\ud800"',
    "a date that is none": "x = 2026-13-45",
    "an hour that is none": "x = 99:00:00",
    "a NUL": "x = '\0'",
    "a key twice": "x = 1\nx = 2",
    "a table twice": "[a]\n[a]\n",
    "half": 'x = "',
    "a byte-order mark": "\ufeffx = 1",
}
