"""JWTs: taken from the one who may issue them, refused in one way whatever is wrong."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, Key, KeySet, OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from tamis.access import Authenticator, Principal
from tamis.access.jwt import JwtSettings, JwtVerifier, read_keys
from tamis.errors import AccessError, PolicyError

NOW = 1_800_000_000.0
SETTINGS = JwtSettings(
    issuer="https://id.example", audience="tamis", algorithms=("ES256", "RS256"), leeway=10
)
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
STRANGER = ECKey.generate_key("P-256", {"kid": "ec"})
CLAIMS = {
    "iss": "https://id.example",
    "aud": "tamis",
    "sub": "ann",
    "exp": NOW + 60,
    "roles": ["trader"],
}


def public(*keys: Key) -> KeySet:
    return KeySet.import_key_set({"keys": [key.as_dict(private=False) for key in keys]})


VERIFIER = JwtVerifier(SETTINGS, public(RSA, EC), clock=lambda: NOW)


def signed(
    key: Key = EC, *, alg: str = "ES256", header: dict[str, Any] | None = None, **claims: Any
) -> str:
    """Return a JWT; a claim that is None is left out."""
    given = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    return jwt.encode({"alg": alg, "kid": key.kid, **(header or {})}, given, key, [alg])


def part(data: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=").decode()


def refusal(text: str, verifier: JwtVerifier = VERIFIER) -> AccessError:
    with pytest.raises(AccessError) as caught:
        verifier.verify(text)
    assert str(caught.value) == "the token is not valid"
    assert caught.value.code == "unauthenticated"
    assert caught.value.__cause__ is None
    return caught.value


# --- what is taken ----------------------------------------------------------------------------


def test_a_jwt_authenticates_its_subject_until_it_expires() -> None:
    assert VERIFIER.verify(signed()) == Principal("ann", ("trader",), NOW + 70)
    assert VERIFIER.verify(signed(RSA, alg="RS256")).name == "ann"


def test_an_authenticator_passes_on_what_is_not_a_token_of_ours() -> None:
    both = Authenticator(lambda _: None, clock=lambda: NOW, verifier=VERIFIER)
    assert both.authenticate(signed()).name == "ann"
    with pytest.raises(AccessError, match="the token is not valid"):
        both.authenticate("tamis_" + signed())


def test_a_single_key_needs_no_kid() -> None:
    verifier = JwtVerifier(SETTINGS, read_keys(EC.as_pem(private=False), "x"), clock=lambda: NOW)
    assert verifier.verify(signed(header={"kid": "whatever"})).name == "ann"


def test_headers_that_nobody_knows_are_ignored_unless_they_are_critical() -> None:
    assert VERIFIER.verify(unchecked(EC, {"alg": "ES256", "kid": "ec", "nonce": "1"})).name == "ann"
    refusal(unchecked(EC, {"alg": "ES256", "kid": "ec", "nonce": "1", "crit": ["nonce"]}))


def unchecked(key: ECKey, header: dict[str, Any]) -> str:
    """Return a JWT with a header that joserfc would not write."""
    signing = f"{part(header)}.{part(CLAIMS)}"
    algorithm = JWSRegistry.algorithms["ES256"]
    signature = algorithm.sign(signing.encode(), key)
    return f"{signing}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


@pytest.mark.parametrize(
    ("path", "claims", "roles"),
    [
        (("roles",), {"roles": ["a", "b"]}, ("a", "b")),
        (("roles",), {"roles": "a b"}, ("a", "b")),
        (("scope",), {"scope": "a  b"}, ("a", "b")),
        (("realm_access", "roles"), {"realm_access": {"roles": ["a"]}}, ("a",)),
        (("https://x.example/roles",), {"https://x.example/roles": ["a"]}, ("a",)),
        (("roles",), {"roles": None}, ()),
        (("roles",), {"roles": {"a": 1}}, ()),
        (("roles",), {"roles": 7}, ()),
        (("roles",), {"roles": ["a", 7, ["b"], None]}, ("a",)),
        (("roles", "of"), {"roles": ["a"]}, ()),
    ],
)
def test_roles_come_from_the_claim_that_the_settings_name(
    path: tuple[str, ...], claims: dict[str, Any], roles: tuple[str, ...]
) -> None:
    settings = JwtSettings(
        issuer=SETTINGS.issuer,
        audience=SETTINGS.audience,
        algorithms=("ES256",),
        roles_claim=path,
    )
    verifier = JwtVerifier(settings, public(EC), clock=lambda: NOW)
    assert verifier.verify(signed(**claims)).roles == roles


def test_only_roles_that_may_come_from_a_jwt_are_taken() -> None:
    settings = JwtSettings(
        issuer=SETTINGS.issuer,
        audience=SETTINGS.audience,
        algorithms=("ES256",),
        roles=("trader",),
        name_claim="email",
    )
    verifier = JwtVerifier(settings, public(EC), clock=lambda: NOW)
    text = signed(roles=["admin", "trader"], email="ann@example.org")
    assert verifier.verify(text) == Principal("ann@example.org", ("trader",), NOW + 90)


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW - 10},
        {"exp": NOW - 1e6},
        {"exp": None},
        {"exp": "soon"},
        {"exp": True},
        {"exp": 10**400},
        {"nbf": NOW + 11},
        {"iat": NOW + 11},
        {"nbf": "now"},
        {"iss": "https://evil.example"},
        {"iss": None},
        {"iss": ["https://id.example"]},
        {"aud": "other"},
        {"aud": None},
        {"aud": []},
        {"aud": ["other", "another"]},
        {"aud": {"tamis": 1}},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "two\nlines"},
        {"sub": "x" * 201},
    ],
)
def test_claims_that_are_wrong_are_refused(claims: dict[str, Any]) -> None:
    refusal(signed(**claims))


@pytest.mark.parametrize(
    "claims",
    [{"exp": NOW - 9}, {"nbf": NOW + 10}, {"iat": NOW + 10}, {"aud": ["x", "tamis"]}],
)
def test_clocks_may_differ_a_little_and_audiences_may_be_several(claims: dict[str, Any]) -> None:
    assert VERIFIER.verify(signed(**claims)).name == "ann"


def test_an_unsigned_jwt_is_refused() -> None:
    for alg in ("none", "None", "NONE", "nOnE", ""):
        for signature in ("", "AA"):
            refusal(f"{part({'alg': alg})}.{part(CLAIMS)}.{signature}")
            refusal(f"{part({'alg': alg, 'kid': 'ec'})}.{part(CLAIMS)}.{signature}")
    header, payload, _ = signed().split(".")
    refusal(f"{header}.{payload}.")


@pytest.mark.parametrize(
    "secret",
    [
        lambda: RSA.as_pem(private=False),
        lambda: RSA.as_pem(private=False).strip(),
        lambda: RSA.as_der(private=False),
        lambda: json.dumps(RSA.as_dict(private=False)).encode(),
        lambda: EC.as_pem(private=False),
    ],
)
def test_a_public_key_is_no_secret_to_sign_with(secret: Callable[[], bytes]) -> None:
    for kid in ("rsa", "ec"):
        signing = f"{part({'alg': 'HS256', 'typ': 'JWT', 'kid': kid})}.{part(CLAIMS)}"
        digest = hmac.new(secret(), signing.encode(), hashlib.sha256).digest()
        forged = f"{signing}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"
        refusal(forged)


def test_the_signature_of_someone_else_is_refused() -> None:
    assert "bad_signature" in refusal(signed(STRANGER)).reason


def test_a_key_that_comes_with_the_token_is_not_used() -> None:
    refusal(signed(STRANGER, header={"jwk": STRANGER.as_dict(private=False)}))
    refusal(signed(STRANGER, header={"jku": "https://evil.example/keys"}))


def test_a_kid_that_is_unknown_or_missing_is_refused() -> None:
    refusal(signed(header={"kid": "other"}))
    refusal(signed(header={"kid": "rsa"}))
    refusal(unchecked(EC, {"alg": "ES256"}))
    refusal(unchecked(EC, {"alg": "ES256", "kid": 7}))
    refusal(unchecked(EC, {"alg": "ES256", "kid": ["ec"]}))


def test_an_algorithm_that_is_not_named_is_refused() -> None:
    refusal(signed(RSA, alg="RS512"))
    refusal(signed(RSA, alg="PS256"))


def test_what_was_signed_cannot_be_changed() -> None:
    text = signed()
    header, payload, signature = text.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    refusal(f"{header}.{part(claims | {'roles': ['admin']})}.{signature}")
    for at in range(0, len(text), 3):
        refusal(text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :])


GARBAGE = [
    "",
    ".",
    "..",
    "...",
    "a.b.c",
    "a.b.c.d.e",
    "é.é.é",
    "\ud800.\ud800.\ud800",
    "\x00.\x00.\x00",
    f"{part([])}.{part([])}.AA",
    f"{part(None)}.{part(None)}.AA",
    f"{part('alg')}.{part({})}.AA",
    f"{part({'alg': []})}.{part(CLAIMS)}.AA",
    f"{part({'alg': {}})}.{part(CLAIMS)}.AA",
    f"{part({'alg': 7})}.{part(CLAIMS)}.AA",
    f"{part({'alg': None})}.{part(CLAIMS)}.AA",
    f"{part({'alg': 'ES256', 'kid': 'ec'})}.{part(CLAIMS)}.AA",
    f"{part({'alg': 'ES256', 'kid': 'ec', 'b64': False, 'crit': ['b64']})}..AA",
    f"{part({'alg': 'ES256', 'kid': 'ec', 'crit': 7})}.{part(CLAIMS)}.AA",
    f"{base64.urlsafe_b64encode(b'[' * 300).decode()}.{part(CLAIMS)}.AA",
    "A" * 20_000,
    "." * 20_000,
    " " + signed(),
    signed() + "\n",
    "Bearer " + signed(),
]


@pytest.mark.parametrize("text", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_refused_in_the_same_words(text: str) -> None:
    refusal(text)


def test_claims_that_are_no_claims_are_refused() -> None:
    for payload in (b"[]", b"null", b"7", b"{", b"\xff", b'{"exp": NaN}', b"[" * 8000):
        text = base64.urlsafe_b64encode(payload).rstrip(b"=").decode()
        signing = f"{part({'alg': 'ES256', 'kid': 'ec'})}.{text}"
        signature = JWSRegistry.algorithms["ES256"].sign(signing.encode(), EC)
        refusal(f"{signing}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}")


def test_tokens_with_random_damage_are_refused() -> None:
    rng = Random(3)
    for _ in range(500):
        whole = signed()
        damaged = list(whole)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(damaged))
            damaged[at] = rng.choice("ABCxyz019-_.=~\n é")
        text = "".join(damaged)
        if text != whole:
            refusal(text)


# --- settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithms", "keys", "reason"),
    [
        ((), [EC], "cannot be used"),
        (("none",), [EC], "cannot be used"),
        (("ES256", "none"), [EC], "cannot be used"),
        (("HS256", "ES256"), [EC], "not of both"),
        (("HS256",), [EC], "not a secret key"),
        (("ES256",), [OctKey.generate_key(256)], "not a public key"),
        (("ES256",), [EC, OctKey.generate_key(256)], "not a public key"),
        (("HS256",), [OctKey.generate_key(128)], "at least 32 bytes"),
    ],
)
def test_settings_that_would_be_unsafe_are_refused(
    algorithms: tuple[str, ...], keys: list[Key], reason: str
) -> None:
    settings = JwtSettings(issuer="i", audience="a", algorithms=algorithms)
    with pytest.raises(PolicyError, match=reason):
        JwtVerifier(settings, KeySet(keys), clock=lambda: NOW)


def test_issuer_and_audience_must_be_named() -> None:
    for issuer, audience in (("", "a"), ("i", "")):
        settings = JwtSettings(issuer=issuer, audience=audience, algorithms=("ES256",))
        with pytest.raises(PolicyError, match="must be named"):
            JwtVerifier(settings, public(EC), clock=lambda: NOW)


def test_a_shared_secret_can_be_used_where_nothing_else_is_allowed() -> None:
    secret = OctKey.generate_key(256, {"kid": "s"})
    settings = JwtSettings(issuer="https://id.example", audience="tamis", algorithms=("HS256",))
    verifier = JwtVerifier(settings, KeySet([secret]), clock=lambda: NOW)
    assert verifier.verify(signed(secret, alg="HS256")).name == "ann"
    refusal(signed(), verifier)


def test_keys_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    with pytest.raises(PolicyError, match="it cannot be read"):
        JwtVerifier.load(SETTINGS, path, clock=lambda: NOW)
    path.write_text(json.dumps(public(EC).as_dict()))
    assert JwtVerifier.load(SETTINGS, path, clock=lambda: NOW).verify(signed()).name == "ann"
    for key in (RSA, EC, OKPKey.generate_key("Ed25519")):
        path.write_bytes(key.as_pem(private=False))
        JwtVerifier.load(SETTINGS, path, clock=lambda: NOW)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"{}", b'{"keys": []}', b'{"keys": [{}]}', b'{"keys": 7}', b"\xff", b"secret"],
)
def test_a_file_without_keys_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(data)
    with pytest.raises(PolicyError, match="there are no keys in it"):
        JwtVerifier.load(SETTINGS, path, clock=lambda: NOW)
