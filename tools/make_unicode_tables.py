#!/usr/bin/env python3
"""Writes src/jinja/unicode_tables.inc: letter case and character classes as this Python knows them.

Usage: tools/make_unicode_tables.py > src/jinja/unicode_tables.inc
"""
import sys
import unicodedata

CODES = [c for c in range(0x80, 0x110000) if not 0xD800 <= c <= 0xDFFF]


def ranges(holds):
    out = []
    for code in CODES:
        if not holds(chr(code)):
            continue
        if out and out[-1][1] == code - 1:
            out[-1][1] = code
        else:
            out.append([code, code])
    return out


def print_ranges(name, holds):
    print(f"constexpr CodeRange {name}[] = {{")
    line = ""
    for first, last in ranges(holds):
        item = f"{{{first:#x}, {last:#x}}},"
        if len(line) + len(item) > 95:
            print("   " + line)
            line = ""
        line += " " + item
    print("   " + line + "\n};")


def print_case(name, to):
    single, several = [], []
    for code in CODES:
        result = to(chr(code))
        if result == chr(code):
            continue
        if len(result) > 1:
            several.append((code, result))
            continue
        delta = ord(result) - code
        row = single[-1] if single else None
        if row and row[3] == delta and row[1] != row[0] and code - row[1] == row[2]:
            row[1] = code
        elif row and row[3] == delta and row[1] == row[0] and code - row[1] in (1, 2):
            row[1], row[2] = code, code - row[0]
        else:
            single.append([code, code, 1, delta])
    print(f"constexpr CaseRange {name}[] = {{")
    line = ""
    for first, last, stride, delta in single:
        item = f"{{{first:#x}, {last:#x}, {stride}, {delta}}},"
        if len(line) + len(item) > 95:
            print("   " + line)
            line = ""
        line += " " + item
    print("   " + line + "\n};")
    print(f"constexpr CaseString {name}Strings[] = {{")
    for code, result in several:
        codes = [ord(c) for c in result] + [0] * (3 - len(result))
        print(f"    {{{code:#x}, {{{', '.join(hex(c) for c in codes)}}}}},")
    print("};")


def main():
    print(f"// Unicode {unicodedata.unidata_version}, from U+0080 on; "
          "written by tools/make_unicode_tables.py.")
    print_case("kUpper", str.upper)
    print_case("kLower", str.lower)
    print_case("kTitle", str.title)
    print_ranges("kAlpha", str.isalpha)
    print_ranges("kDecimal", str.isdecimal)
    print_ranges("kNumeric", lambda c: c.isalnum() and not c.isalpha())
    print_ranges("kUnprintable", lambda c: not c.isprintable())


if __name__ == "__main__":
    sys.exit(main())
