//! The sender against receivers with valid and invalid TLS.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair,
    date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use super::{config, listen, sender, sender_of, serve_raw, to};
use crate::sender::*;

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Issuer {
    Issuer::self_signed(of_authority("an authority"), KeyPair::generate().unwrap()).unwrap()
}

fn of_authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// A certificate that is signed by `issuer` or self-signed.
fn certificate(params: &CertificateParams, issuer: Option<&Issuer>) -> (Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let signed =
        issuer.map_or_else(|| params.self_signed(&key), |issuer| params.signed_by(&key, issuer));
    (signed.unwrap(), key)
}

/// Answers 200 to clients that accept its certificate. Returns its URL.
async fn serve((certificate, key): (Certificate, KeyPair)) -> String {
    serve_chain(vec![certificate.der().clone()], key).await
}

async fn serve_chain(chain: Vec<CertificateDer<'static>>, key: KeyPair) -> String {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that refuses the certificate ends the connection.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            if stream.read(&mut [0; 4096]).await.is_ok() {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
            }
        }
    });
    format!("https://{address}/hooks")
}

/// Sends an attempt that trusts these certificates, as if they were in `ca_file`.
async fn send(url: String, trusted: &[&str]) -> Answer {
    let read = |pem: &&str| reqwest::Certificate::from_pem(pem.as_bytes()).unwrap();
    send_trusting(url, trusted.iter().map(read).collect()).await
}

async fn send_trusting(url: String, certificates: Vec<reqwest::Certificate>) -> Answer {
    let config = Config { certificates, ..config(Duration::from_secs(10), true) };
    sender_of(&config).send(&to(url)).await
}

/// Two authorities in one file, of which the second one is the receiver's.
#[tokio::test]
async fn the_authorities_of_a_file_are_trusted() {
    let (other, own) = (authority(), authority());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("authorities.pem");
    std::fs::write(&file, other.pem() + &own.pem()).unwrap();
    let (config, problems) =
        crate::config::tests::read(&format!("[webhooks]\nca_file = \"{}\"\n", file.display()));
    assert_eq!((config.certificates.len(), problems), (2, Vec::new()));
    let fitting = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let url = serve(certificate(&fitting, Some(&own))).await;
    let answer = send_trusting(url, config.certificates).await;
    assert_eq!((answer.outcome, answer.cause), (AttemptOutcome::Delivered, None));
}

#[tokio::test]
async fn an_incomplete_chain_is_named() {
    let root = authority();
    let of_intermediate = (of_authority("an intermediate"), KeyPair::generate().unwrap());
    let intermediate = Issuer::signed_by(of_intermediate.0, of_intermediate.1, &root).unwrap();
    let fitting = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    for (sends_intermediate, outcome) in
        [(true, AttemptOutcome::Delivered), (false, AttemptOutcome::Connect)]
    {
        let (leaf, key) = certificate(&fitting, Some(&intermediate));
        let mut chain = vec![leaf.der().clone()];
        chain.extend(sends_intermediate.then(|| intermediate.der().clone()));
        let answer = send(serve_chain(chain, key).await, &[&root.pem()]).await;
        assert_eq!(answer.outcome, outcome, "{:?}", answer.cause);
        assert_eq!(answer.cause.is_some(), !sends_intermediate);
        let Some(cause) = answer.cause else { continue };
        assert!(cause.contains("UnknownIssuer: incomplete chain"), "{cause}");
        assert!(cause.ends_with("(webhooks.ca_file)"), "cut off: {cause}");
    }
}

#[tokio::test]
async fn certificates_that_do_not_fit_are_refused() {
    let authority = authority();
    let (pem, own) = (authority.pem(), Some(&authority));
    let fitting = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let answer = send(serve(certificate(&fitting, own)).await, &[&pem]).await;
    assert_eq!((answer.outcome, answer.cause), (AttemptOutcome::Delivered, None));

    let elsewhere = CertificateParams::new(["127.0.0.2".to_owned()]).unwrap();
    let mut expired = fitting.clone();
    (expired.not_before, expired.not_after) =
        (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    for (what, trusted, served) in [
        ("UnknownIssuer", "", certificate(&fitting, own)),
        ("UnknownIssuer", &pem, certificate(&fitting, None)),
        ("expired", &pem, certificate(&expired, own)),
        ("not valid for", &pem, certificate(&elsewhere, own)),
    ] {
        let trusted: Vec<_> = [trusted].into_iter().filter(|pem| !pem.is_empty()).collect();
        let answer = send(serve(served).await, &trusted).await;
        assert_eq!((answer.outcome, answer.http_status), (AttemptOutcome::Connect, None), "{what}");
        let cause = answer.cause.unwrap();
        assert!(cause.contains(what), "{what} is not in {cause}");
        assert_eq!(cause.contains("incomplete chain"), what == "UnknownIssuer", "{cause}");
    }
}

/// Reads the client's hello, and writes `answer` or stays silent.
async fn serve_bytes(answer: &'static [u8]) -> String {
    let address = serve_raw(move |mut stream| async move {
        stream.write_all(answer).await.unwrap();
        if answer.is_empty() {
            std::future::pending::<()>().await;
        }
    });
    format!("https://{}/", address.await)
}

#[tokio::test]
async fn failed_handshakes_are_failures_to_connect() {
    // The alert of a server without TLS 1.2 or newer: protocol_version, fatal.
    let old = send(serve_bytes(b"\x15\x03\x02\x00\x02\x02\x46").await, &[]).await;
    let cause = old.cause.unwrap();
    assert_eq!(old.outcome, AttemptOutcome::Connect);
    assert!(cause.contains("ProtocolVersion"), "{cause}");
    let sender = sender(Duration::from_millis(500), true);
    let stalled = sender.send(&to(serve_bytes(b"").await)).await;
    assert_eq!((stalled.outcome, stalled.http_status), (AttemptOutcome::Connect, None));
}
