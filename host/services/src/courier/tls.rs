//! The client side of TLS: a server must have a certificate for its name.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// Trusts the CA certificates of a file, or those of the system.
///
/// # Errors
/// The file cannot be read or contains no certificate, or the system has no CA certificates.
pub fn client(ca: Option<&Path>) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            let what = || path.display().to_string();
            for certificate in CertificateDer::pem_file_iter(path).with_context(what)? {
                roots.add(certificate.with_context(what)?).with_context(what)?;
            }
            anyhow::ensure!(!roots.is_empty(), "{}: contains no certificate", what());
        }
        None => {
            let (added, _) =
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            anyhow::ensure!(
                added > 0,
                "this system has no CA certificates: install them (package ca-certificates), or \
                 set a file that contains them"
            );
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
