//! TLS as libpq's `sslmode` means it: `prefer` and `require` encrypt without asking who is at
//! the other end, `verify-ca` asks for a certificate of a known root, `verify-full` also for
//! the server's name in it.

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

use crate::ports::store::{Error, Result};

/// How the server is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// By nothing: the connection is encrypted and that is all.
    Anybody,
    /// By a certificate of a known root.
    Root,
    /// By a certificate of a known root with the server's name.
    Name,
}

/// The client's side of TLS.
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
            "sslmode verify-ca and verify-full need the root's certificate: name its file (PEM) \
             as root_certificate"
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

/// What to mend where the server's certificate was not accepted; none: that was not the reason.
pub(super) fn distrust(e: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut cause = Some(e);
    while let Some(e) = cause {
        // The handshake's error travels inside one of I/O, which does not name it as its source.
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
            "renew the server's certificate, or set this machine's clock right".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "set this machine's clock right, or wait until the certificate is valid".into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "name the host in store.url as the server's certificate does, or give the server a \
             certificate with that name"
                .into()
        }
        CertificateError::UnknownIssuer => {
            "name the certificate of the authority that signed the server's as \
             store.root_certificate"
                .into()
        }
        _ => "give the server another certificate".into(),
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
        return Err(named(&"it holds no certificate"));
    }
    Ok(store)
}

/// Checks the handshake's signatures, and of the certificate only its root, if that.
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
