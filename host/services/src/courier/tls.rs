//! The client side of TLS: a server must have a certificate for its name.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};

/// Trusts the CA certificates of a file, or those of the system.
///
/// # Errors
/// The file cannot be read or contains no certificate, or the system has no CA certificates.
pub fn client(ca: Option<&Path>) -> anyhow::Result<ClientConfig> {
    client_with(ca, None)
}

/// A client that trusts nobody, where no receiver needs TLS.
///
/// # Errors
/// None is expected.
pub fn none() -> anyhow::Result<ClientConfig> {
    Ok(builder()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn builder() -> anyhow::Result<ConfigBuilder<ClientConfig, WantsVerifier>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?)
}

/// The PEM files by which a client identifies itself.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// The certificate, followed by the intermediate certificates.
    pub cert: &'a Path,
    /// The private key (mode 0600).
    pub key: &'a Path,
}

/// Like [`client`], with a client certificate for servers that require one.
///
/// # Errors
/// As for [`client`], or one of the identity's files cannot be used.
pub fn client_with(
    ca: Option<&Path>,
    identity: Option<Identity<'_>>,
) -> anyhow::Result<ClientConfig> {
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
    let config = builder()?.with_root_certificates(roots);
    let Some(files) = identity else { return Ok(config.with_no_client_auth()) };
    let (certificates, secret) = self::identity(files)?;
    let both = || format!("{} with {}", files.cert.display(), files.key.display());
    config.with_client_auth_cert(certificates, secret).with_context(both)
}

/// The certificates and the key of a client.
///
/// # Errors
/// A file that cannot be used.
pub fn identity(
    Identity { cert, key }: Identity<'_>,
) -> anyhow::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let of = |path: &Path| path.display().to_string();
    let certificates = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| of(cert))?;
    anyhow::ensure!(!certificates.is_empty(), "{}: contains no certificate", of(cert));
    let secret =
        besom_system::secret::read(key).map_err(|words| anyhow::anyhow!("{}: {words}", of(key)))?;
    let secret = PrivateKeyDer::from_pem_slice(&secret).with_context(|| of(key))?;
    Ok((certificates, secret))
}
