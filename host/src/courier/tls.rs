//! The client's side of TLS: whoever is spoken to has to have a certificate with its name.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// Trusts the authorities of a file, or the system's.
///
/// # Errors
/// A file that cannot be read or holds no certificate; a system without authorities.
pub fn client(ca: Option<&Path>) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            let what = || path.display().to_string();
            for certificate in CertificateDer::pem_file_iter(path).with_context(what)? {
                roots.add(certificate.with_context(what)?).with_context(what)?;
            }
            anyhow::ensure!(!roots.is_empty(), "{}: it holds no certificate", what());
        }
        None => {
            let (added, _) =
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            anyhow::ensure!(
                added > 0,
                "this system has no certificates of authorities: install them (the package \
                 ca-certificates), or name a file with them"
            );
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
