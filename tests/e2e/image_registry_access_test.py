"""Tests which registries and mirrors are used and trusted for pushes and pulls of images, and with which
credentials."""

import base64
import json
import os
import shutil
import subprocess
import sys
import unittest

import registry_support
from image_registry_support import MEGABYTE, Journey
from registry_support import TokenServer, make_certificate


class Trust(Journey):
    def test_a_private_certificate_authority_is_trusted_only_if_configured(self):
        authority = make_certificate(self.root, "authority")
        server = self.registry(tls=make_certificate(self.root, "server", authority))
        file = self.file(100)
        message = self.fail_with("tries=2", "push", f"{server.host}/x:1", file)
        self.assertIn(f"the registry '{server.host}' is not trusted", message)
        self.assertIn(f"/etc/docker/certs.d/{server.host}/ca.crt", message)
        self.succeed(f"ca={authority[0]}", "push", f"{server.host}/x:1", file)
        certificates = self.root / "certs.d" / server.host
        certificates.mkdir(parents=True)
        shutil.copy(authority[0], certificates / "ca.crt")
        self.pull(f"certs={self.root / 'certs.d'}", f"{server.host}/x:1")
        copy = self.root / "copy"
        self.skopeo("copy", "--src-cert-dir", certificates, f"docker://{server.host}/x:1", f"dir:{copy}")

    def test_pulls_use_the_mirror_or_the_registry_if_the_other_is_down(self):
        server, mirror = self.registry(), self.registry("mirror")
        layer = self.file(MEGABYTE)
        digest = self.succeed("push", f"{server.host}/x:1", layer)
        self.assertEqual(self.succeed("push", f"{mirror.host}/cache/x:1", layer), digest)
        wanted = [f"mirror={server.host}=http://{mirror.host}/cache", "tries=2"]
        digests = {blob["digest"] for blob in self.pull(*wanted, f"{server.host}/x:1")["layers"]}
        mirror.kill()
        self.pull(*wanted, f"{server.host}/x:1")
        mirror.start()
        server.kill()
        self.assertEqual({blob["digest"] for blob in self.pull(*wanted, f"{server.host}/x:1")["layers"]}, digests)

    def test_a_download_interrupted_at_a_mirror_is_completed_from_the_registry(self):
        server, mirror = self.registry(), self.registry("mirror")
        layer = self.file(8 * MEGABYTE)
        self.succeed("push", f"{server.host}/x:1", layer)
        self.succeed("push", f"{mirror.host}/x:1", layer)
        bad = self.line(mirror, lambda up, down: down > 3 * MEGABYTE)
        own = self.line(server, lambda up, down: False)
        self.pull(f"mirror={own.host}=http://{bad.host}", "tries=1", f"{own.host}/x:1")
        self.assertLess(own.passed[1], 6 * MEGABYTE)


class Credentials(Journey):
    SECRET = "s3cret-of-the-test"

    def basic(self, user="ada", password=SECRET):
        return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}

    def protected(self):
        passwords = self.root / "htpasswd"
        subprocess.run(["htpasswd", "-Bbc", passwords, "ada", self.SECRET], check=True, capture_output=True)
        return self.registry(auth={"htpasswd": {"realm": "test", "path": str(passwords)}})

    def test_basic_authentication_requires_the_correct_password(self):
        server = self.protected()
        file = self.file(MEGABYTE)
        nobody = self.auth_file({})
        message = self.fail_with(f"auth={nobody}", "push", f"{server.host}/x:1", file)
        self.assertIn(f"log in with `docker login {server.host}` or `podman login {server.host}`", message)
        wrong = self.auth_file({"auths": {server.host: self.basic(password="wrong-" + self.SECRET)}}, "wrong.json")
        message = self.fail_with(f"auth={wrong}", "push", f"{server.host}/x:1", file)
        self.assertIn(f"the credentials from '{wrong}' were rejected; log in again", message)
        self.assertNotIn(self.SECRET, message)
        right = self.auth_file({"auths": {server.host: self.basic()}}, "right.json")
        digest = self.succeed(f"auth={right}", "push", f"{server.host}/x:1", file)
        self.skopeo("copy", "--authfile", right, "--src-tls-verify=false", f"docker://{server.host}/x@{digest}", f"dir:{self.root / 'copy'}")
        self.pull(f"auth={right}", f"{server.host}/x:1")

    def test_environment_variables_select_the_credentials_file_and_a_helper_takes_precedence_over_it(self):
        server = self.protected()
        file = self.file(1000)
        wrong = self.basic(password="old")
        programs = self.root / "bin"
        programs.mkdir()
        helper = programs / "docker-credential-test"
        helper.write_text(f"""#!/bin/sh
[ "$1" = get ] && [ "$(cat)" = {server.host} ] || {{ echo "credentials not found in native keychain"; exit 1; }}
echo '{{"ServerURL": "x", "Username": "ada", "Secret": "{self.SECRET}"}}'
""")
        helper.chmod(0o755)
        path = f"{programs}:{os.environ['PATH']}"
        (self.root / "config.json").write_text(json.dumps(
            {"credHelpers": {server.host: "test"}, "credsStore": "missing", "auths": {server.host: wrong}}))
        self.succeed("push", f"{server.host}/x:1", file, environment={"DOCKER_CONFIG": str(self.root), "PATH": path})
        (self.root / "containers").mkdir()
        self.auth_file({"auths": {f"{server.host}/x": self.basic(), server.host: wrong}}, "containers/auth.json")
        self.succeed("show", f"{server.host}/x:1", environment={"XDG_RUNTIME_DIR": str(self.root)})
        first = self.auth_file({"auths": {"https://" + server.host + "/v1/": self.basic()}}, "first.json")
        self.succeed("show", f"{server.host}/x:1", environment={"REGISTRY_AUTH_FILE": str(first), "DOCKER_CONFIG": str(self.root)})

    def token_registry(self, **options):
        certificate, key = make_certificate(self.root, "issuer")
        tokens = TokenServer(certificate, key, **options)
        self.addCleanup(tokens.server.shutdown)
        server = self.registry(auth={"token": {"realm": tokens.realm, "service": "registry", "issuer": "test", "rootcertbundle": str(certificate)}})
        return server, tokens

    def test_tokens_are_requested_with_the_password(self):
        server, tokens = self.token_registry()
        file = self.file(MEGABYTE)
        auth = self.auth_file({"auths": {server.host: self.basic(password="secret")}})
        self.succeed(f"auth={auth}", "push", f"{server.host}/public:1", file)
        self.assertLessEqual({("GET", "ada:secret", ("repository:public:pull,push",))},
                             {(method, who, tuple(scopes)) for method, who, scopes in tokens.asked})
        self.assertLessEqual(len(tokens.asked), 2 + 4 * 2)
        self.assertIn("mounted", self.succeed(f"auth={auth}", "push-blob", f"{server.host}/other", file, "public"))
        nobody = self.auth_file({}, "nobody.json")
        self.pull(f"auth={nobody}", f"{server.host}/public:1")
        self.assertIn("log in with", self.fail_with(f"auth={nobody}", "push", f"{server.host}/public:2", file))
        self.assertIn("log in with", self.fail_with(f"auth={nobody}", "show", f"{server.host}/other:2"))

    def test_a_refresh_token_is_sent_in_a_post_request(self):
        server, tokens = self.token_registry()
        auth = self.auth_file({"auths": {server.host: {"identitytoken": "refresh"}}})
        self.succeed(f"auth={auth}", "push", f"{server.host}/x:1", self.file(1000))
        self.assertEqual({(method, who) for method, who, _ in tokens.asked}, {("POST", "refresh")})

    def test_an_expired_token_is_renewed(self):
        server, tokens = self.token_registry(stale=True)
        auth = self.auth_file({"auths": {server.host: self.basic(password="secret")}})
        self.assertIn("uploaded", self.succeed(f"auth={auth}", "push-blob", f"{server.host}/x", self.file(5 * MEGABYTE)))
        asked = [tuple(scopes) for _, _, scopes in tokens.asked]
        self.assertEqual([asked.count(scopes) for scopes in sorted(set(asked))], [2, 2], asked)

    def test_a_token_server_that_rejects_credentials_is_named_in_the_error(self):
        server, tokens = self.token_registry()
        auth = self.auth_file({"auths": {server.host: self.basic(password="not-the-secret")}})
        message = self.fail_with(f"auth={auth}", "push-blob", f"{server.host}/x", self.file(10))
        self.assertIn(f"the token server '{tokens.realm}' for '{server.host}' refused the request", message)
        self.assertIn("incorrect username or password", message)
        self.assertNotIn("not-the-secret", message)


if __name__ == "__main__":
    if registry_support.missing_tools():
        print("skipped: these are not installed:", *registry_support.missing_tools())
        sys.exit(77)
    unittest.main(verbosity=2)
