"""A small OAuth issuer on loopback: real HTTP, real keys, and tokens as a test wants them."""

import base64
import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | Ed25519PrivateKey
_MADE_WITH = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}


def new_key(algorithm: str) -> Private:
    """A private key that signs in that way."""
    match _MADE_WITH[algorithm[:2]]:
        case "RSA":
            return rsa.generate_private_key(65537, 2048)
        case "EC":
            return ec.generate_private_key(ec.SECP256R1())
        case _:
            return Ed25519PrivateKey.generate()


def public_jwk(key: Private, kid: str) -> dict[str, object]:
    """The public half of a key, as an issuer publishes it."""
    if isinstance(key, rsa.RSAPrivateKey):
        text = RSAAlgorithm.to_jwk(key.public_key())
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        text = ECAlgorithm.to_jwk(key.public_key())
    else:
        text = OKPAlgorithm.to_jwk(key.public_key())
    return {**json.loads(text), "kid": kid, "use": "sig"}


@dataclass
class OAuthIssuer:
    """What it publishes and signs; every field may be changed while it runs."""

    url: str = ""
    keys: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    metadata: dict[str, object] = field(default_factory=dict[str, object])
    status: int = 200
    """What it answers with."""
    asked: list[str] = field(default_factory=list[str])
    """The paths that it was asked for."""
    forms: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """What programs sent to get a token."""
    _private: dict[str, tuple[Private, str]] = field(default_factory=dict[str, tuple[Private, str]])

    def publish(self, kid: str, algorithm: str = "RS256", key: Private | None = None) -> None:
        """Make a key known; tokens are signed with the one that came last."""
        key = key or new_key(algorithm)
        self.keys.append(public_jwk(key, kid))
        self.sign_with(kid, algorithm, key)

    def sign_with(self, kid: str, algorithm: str, key: Private) -> None:
        """Sign with a key, known or not, from now on."""
        self._private = {kid: (key, algorithm)}

    def token(self, subject: str = "anna", *, audience: object = "", **claims: object) -> str:
        """A signed token; a claim that is None is left out."""
        ((kid, (key, algorithm)),) = self._private.items()
        return jwt.encode(self.claims(subject, audience, **claims), key, algorithm, {"kid": kid})

    def claims(self, subject: str, audience: object, **claims: object) -> dict[str, object]:
        """What a token of this issuer says, with changes."""
        now = int(time.time())
        usual: dict[str, object] = {
            "iss": self.url, "sub": subject, "aud": audience, "iat": now, "exp": now + 600,
            "client_id": "editor", "scope": "runs",
        }  # fmt: skip
        return {name: value for name, value in (usual | claims).items() if value is not None}

    def unsigned(self, audience: str) -> str:
        """A token that says that it needs no signature."""
        parts = ({"alg": "none", "typ": "JWT"}, self.claims("anna", audience))
        return ".".join([*map(encoded, parts), ""])

    def document(self, path: str) -> dict[str, object] | None:
        """What there is at a path."""
        if path == "/keys":
            return {"keys": self.keys}
        return self.metadata if path.startswith("/.well-known/") else None


def encoded(part: object) -> str:
    """A part of a token."""
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


@contextmanager
def run_issuer() -> Generator[OAuthIssuer]:
    """An issuer at a free port, with one key and metadata."""
    issuer = OAuthIssuer()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked.append(self.path)
            found = issuer.document(self.path)
            self.send_response(issuer.status if found is not None else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["content-length"])).decode()
            form = dict(parse_qsl(sent))
            issuer.forms.append(form)
            token = issuer.token("robot", audience=form["resource"], client_id="robot")
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            given = {"access_token": token, "token_type": "Bearer", "expires_in": 600}
            self.wfile.write(json.dumps(given).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
        issuer.metadata = {
            "issuer": issuer.url,
            "jwks_uri": f"{issuer.url}/keys",
            "token_endpoint": f"{issuer.url}/token",
            "authorization_endpoint": f"{issuer.url}/authorize",
        }
        issuer.publish("first")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()
