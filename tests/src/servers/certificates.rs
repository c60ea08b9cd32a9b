//! A certificate authority of the tests, and certificates that it has signed.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

/// An authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    /// A new authority, which nothing else trusts.
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Authority { issuer: Issuer::new(params, key), certificate }
    }

    /// Its own certificate (PEM).
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Certificate and key (PEM) of a host; expired ones ended years ago.
    pub fn sign(&self, host: &str, expired: bool) -> (String, String) {
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, host);
        if expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("it is signed");
        (signed.pem(), key.serialize_pem())
    }
}
