"""Detection rules: texts in any case, wildcards and networks; one rule makes another needless."""

from tamis import Engine

RULES = {
    "shell from office": r'parent ~ends with "\\winword.exe" and image ~ends with "\\cmd.exe"',
    "any shell": r'image ~ends with "\\cmd.exe" or image ~like "%powershell%.exe"',
    "encoded command": r'command ~matches "-e(nc|ncodedcommand)? [a-z0-9+/=]{8}"',
    "from inside": 'source in (10.0.0.0/8, fc00::/7) and user not ~in ("System", "backup")',
}

EVENT = {
    "image": r"C:\Windows\System32\CMD.EXE",
    "parent": r"C:\Program Files\Office\WinWord.exe",
    "command": "powershell -ENC SQBFAFgA",
    "source": "10.20.30.40",
    "user": "alice",
}

engine = Engine()
for name, rule in RULES.items():
    engine.add(name, rule)

print("Found:", ", ".join(map(str, engine.match(EVENT))))
print(engine.explain("from inside", {**EVENT, "source": "192.0.2.7"}))
print(engine.lint())
