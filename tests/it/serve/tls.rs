//! A listener with a certificate.

use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;

use serde_json::Value;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{OPEN, endpoint};
use crate::real_clients::{installed, top};
use crate::support::serving::{Client, Serving, connect, exchange};

/// A gate with a certificate of its own, and a client that trusts that one alone.
fn start() -> (Serving, Arc<ClientConfig>) {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(installed("python").join("bin/python"))
        .arg(top().join("tests/peers/certificate.py"))
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(folder.path().join("certificate.pem")).unwrap();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = "tls = { certificates = 'certificate.pem', key = 'key.pem' }\n";
    (
        Serving::start_in(folder, &format!("{OPEN}{tls}{}", endpoint("a"))),
        Arc::new(config),
    )
}

fn secured(
    client: &Client,
    config: &Arc<ClientConfig>,
    name: &'static str,
) -> StreamOwned<ClientConnection, TcpStream> {
    let connection = ClientConnection::new(Arc::clone(config), ServerName::try_from(name).unwrap()).unwrap();
    StreamOwned::new(connection, connect(&client.authority).unwrap())
}

#[test]
fn clients_are_served_over_tls_alone() {
    let (gate, config) = start();
    assert!(gate.urls[0].starts_with("https://"), "{:?}", gate.urls);
    let client = gate.client(0);
    let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    for name in ["localhost", "127.0.0.1"] {
        let response = exchange(secured(&client, &config, name), &client.request(&[], body)).unwrap();
        assert_eq!(200, response.status, "{response:?}");
        let (opened, _): (Value, String) = response.messages().pop().unwrap();
        assert_eq!("2025-11-25", opened["result"]["protocolVersion"], "{opened}");
    }
    let plain = client.initialize();
    assert!(plain.is_none(), "no answer in the clear: {plain:?}");
    let mut stranger = secured(&client, &config, "gate.example.com");
    assert!(
        std::io::Write::write_all(&mut stranger, b"x").is_err(),
        "the certificate is of another name"
    );
    gate.end();
}
