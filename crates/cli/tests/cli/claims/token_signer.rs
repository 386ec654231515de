//! Signs tokens with OpenSSL, so that the verifier is not tested with code of its own. Must not know: what is done with them.

use std::io::Write as _;
use std::process::{Command, Stdio};

use tollgate_testkit::redis::tool;

use crate::harness::Folder;

/// A new RSA key in a temporary folder.
pub(super) struct TokenSigner {
    folder: Folder,
}

impl TokenSigner {
    pub(super) fn new() -> Self {
        let signer = Self {
            folder: Folder::new(),
        };
        let bits = "rsa_keygen_bits:2048";
        signer.openssl(
            &[
                "genpkey",
                "-algorithm",
                "RSA",
                "-pkeyopt",
                bits,
                "-out",
                "key.pem",
            ],
            b"",
        );
        signer
    }

    /// The public key as a JWK.
    pub(super) fn jwk(&self) -> String {
        let printed = self.openssl(&["rsa", "-in", "key.pem", "-noout", "-modulus"], b"");
        let printed = String::from_utf8(printed).unwrap();
        let modulus = printed.trim().strip_prefix("Modulus=").unwrap();
        let byte = |at: usize| u8::from_str_radix(&modulus[at..at + 2], 16).unwrap();
        let modulus: Vec<u8> = (0..modulus.len()).step_by(2).map(byte).collect();
        let n = self.encode(&modulus);
        format!(r#"{{ kty: RSA, alg: RS256, kid: k, e: AQAB, n: "{n}" }}"#)
    }

    /// A token with these claims, signed with RS256.
    pub(super) fn sign(&self, claims: &str) -> String {
        let message = self.message("RS256", claims);
        let signed = self.openssl(&["dgst", "-sha256", "-sign", "key.pem"], message.as_bytes());
        format!("{message}.{}", self.encode(&signed))
    }

    /// A token with `alg: none` and no signature.
    pub(super) fn unsigned(&self, claims: &str) -> String {
        format!("{}.", self.message("none", claims))
    }

    /// A token with HS256 whose secret is the public key, which everybody knows (RFC 8725, 2.1).
    pub(super) fn sign_with_public_key(&self, claims: &str) -> String {
        let public = self.openssl(&["pkey", "-in", "key.pem", "-pubout"], b"");
        let secret: String = public.iter().map(|byte| format!("{byte:02x}")).collect();
        let secret = format!("hexkey:{secret}");
        let message = self.message("HS256", claims);
        let arguments = [
            "dgst", "-sha256", "-mac", "HMAC", "-macopt", &secret, "-binary",
        ];
        let signed = self.openssl(&arguments, message.as_bytes());
        format!("{message}.{}", self.encode(&signed))
    }

    fn message(&self, alg: &str, claims: &str) -> String {
        let header = format!(r#"{{"alg":"{alg}","kid":"k"}}"#);
        let encode = |text: &str| self.encode(text.as_bytes());
        format!("{}.{}", encode(&header), encode(claims))
    }

    /// The bytes in base64url without padding.
    fn encode(&self, bytes: &[u8]) -> String {
        let standard = String::from_utf8(self.openssl(&["base64", "-A"], bytes)).unwrap();
        standard
            .trim_end_matches('=')
            .replace('+', "-")
            .replace('/', "_")
    }

    fn openssl(&self, arguments: &[&str], stdin: &[u8]) -> Vec<u8> {
        let mut command = Command::new(tool("openssl"));
        command.args(arguments).current_dir(self.folder.path());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "openssl {arguments:?}: {output:?}");
        output.stdout
    }
}
