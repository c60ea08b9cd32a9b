//! TLS with the meaning of libpq's `sslmode`: `prefer` and `require` encrypt without verifying the
//! server, `verify-ca` requires a certificate of a known root, `verify-full` also the server's name
//! in it.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use besom_ports::store::{Error, Result};

/// How the server is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// Not at all: the connection is only encrypted.
    Anybody,
    /// By a certificate of a known root.
    Root,
    /// By a certificate of a known root with the server's name.
    Name,
}

/// The TLS configuration of the client.
pub(super) fn client(trust: Trust, roots: Option<&Path>) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::Invalid(format!("TLS: {e}")))?;
    if trust == Trust::Anybody {
        let lax = Arc::new(Lax { provider, verifier: None });
        return Ok(builder.dangerous().with_custom_certificate_verifier(lax).with_no_client_auth());
    }
    let path = roots.ok_or_else(|| {
        Error::Invalid(
            "sslmode verify-ca and verify-full require the root certificate: set \
             store.root_certificate to its file (PEM)"
                .into(),
        )
    })?;
    let store = read(path)?;
    if trust == Trust::Name {
        return Ok(builder.with_root_certificates(store).with_no_client_auth());
    }
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(&provider))
            .build()
            .map_err(|e| Error::Invalid(format!("{}: {e}", path.display())))?;
    let lax = Arc::new(Lax { provider, verifier: Some(verifier) });
    Ok(builder.dangerous().with_custom_certificate_verifier(lax).with_no_client_auth())
}

/// The fix if the server's certificate was rejected; none: the error has another cause.
pub(super) fn distrust(e: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut cause = Some(e);
    while let Some(e) = cause {
        // The handshake's error is wrapped in an I/O error that does not expose it as its source.
        let inner = e.downcast_ref::<std::io::Error>().and_then(|e| e.get_ref());
        let found = inner.and_then(|e| e.downcast_ref()).or_else(|| e.downcast_ref());
        if let Some(rustls::Error::InvalidCertificate(fault)) = found {
            return Some(mended(fault));
        }
        cause = e.source();
    }
    None
}

fn mended(fault: &CertificateError) -> String {
    match fault {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "renew the server's certificate, or correct this machine's clock".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "correct this machine's clock, or wait until the certificate is valid".into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "name the host in store.url as the server's certificate does, or issue the server a \
             certificate with that name"
                .into()
        }
        CertificateError::UnknownIssuer => {
            "set store.root_certificate to the certificate of the authority that signed the \
             server's certificate"
                .into()
        }
        _ => "replace the server's certificate".into(),
    }
}

fn read(path: &Path) -> Result<RootCertStore> {
    let named = |e: &dyn std::fmt::Display| {
        Error::Invalid(format!(
            "the root certificate {} cannot be used: {e}; name a file with certificates in PEM",
            path.display()
        ))
    };
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|e| named(&e))? {
        store.add(certificate.map_err(|e| named(&e))?).map_err(|e| named(&e))?;
    }
    if store.is_empty() {
        return Err(named(&"it contains no certificate"));
    }
    Ok(store)
}

/// Verifies the handshake's signatures, and of the certificate at most its root.
#[derive(Debug)]
struct Lax {
    provider: Arc<CryptoProvider>,
    verifier: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Lax {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let Some(verifier) = &self.verifier else { return Ok(ServerCertVerified::assertion()) };
        match verifier.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verified_connection_needs_a_root_and_says_how_to_name_one() {
        let said = client(Trust::Name, None).unwrap_err().to_string();
        assert!(said.contains("root_certificate"), "{said}");
        let empty = tempfile::NamedTempFile::new().expect("a file");
        let said = client(Trust::Root, Some(empty.path())).unwrap_err().to_string();
        assert!(said.contains("no certificate"), "{said}");
        assert!(client(Trust::Anybody, None).is_ok());
    }
}
