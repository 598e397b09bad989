//! Servers that are not what they should be, each a server of its own.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use postdate_core::{Backend, StoreError, StoreErrorKind, TransactionMode};
use postdate_postgres::Postgres;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sqlx::{Connection, PgConnection};
use test_postgres::{Server, Settings};

use crate::place::endpoint;

/// Has the server show a certificate for `localhost`, and answers with that of its authority.
async fn encrypt(server: &Server) -> String {
    let mut authority = CertificateParams::new([]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let folder = server.data_dir();
    for (name, content) in [("server.crt", certificate.pem()), ("server.key", key.serialize_pem())] {
        give(&folder, name, &content);
    }
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    sqlx::raw_sql("ALTER SYSTEM SET ssl TO on").execute(&mut connection).await.unwrap();
    sqlx::raw_sql("SELECT pg_reload_conf()").execute(&mut connection).await.unwrap();
    authority.pem()
}

/// Writes a file that nobody but the server's user may read.
fn give(folder: &Path, name: &str, content: &str) {
    use std::os::unix::fs::{PermissionsExt, chown};

    let (file, owner) = (folder.join(name), fs::metadata(folder).unwrap());
    fs::write(&file, content).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    chown(&file, Some(owner.uid()), Some(owner.gid())).unwrap();
}

async fn connect(server: &Server, host: &str, options: &str) -> Result<Postgres, StoreError> {
    Postgres::connect(&format!("{}?{options}", server.url().replace("127.0.0.1", host))).await
}

#[tokio::test]
async fn a_certificate_is_believed_only_from_its_authority_and_under_its_name() {
    let server = Server::start(&Settings::fast()).unwrap();
    let refused = connect(&server, "localhost", "sslmode=verify-full").await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Configuration, "without encryption: {refused}");
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root.crt");
    fs::write(&root, encrypt(&server).await).unwrap();
    let trusted = format!("sslmode=verify-full&sslrootcert={}", root.display());
    // The server reads its settings again in its own time.
    crate::place::until("encryption", async || connect(&server, "localhost", &trusted).await.is_ok()).await;
    for (host, options) in [("localhost", "sslmode=verify-full"), ("127.0.0.1", &trusted)] {
        let refused = connect(&server, host, options).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Configuration, "{host} {options}: {refused}");
        assert!(refused.to_string().contains("certificate was not accepted"), "{refused}");
    }
    let store = connect(&server, "localhost", &trusted).await.unwrap();
    store.set_up(&endpoint()).await.unwrap();
}

#[tokio::test]
async fn a_replica_is_refused_and_what_becomes_one_is_an_outage() {
    let mut server = Server::start(&Settings::fast()).unwrap();
    let backend = Postgres::connect(&server.url()).await.unwrap();
    backend.set_up(&endpoint()).await.unwrap();
    let store = backend.open(&endpoint(), TransactionMode::ReceiveOnly).await.unwrap();
    server.stop().unwrap();
    give(&server.data_dir(), "standby.signal", "");
    server.start_again().unwrap();
    let refused = Postgres::connect(&server.url()).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Configuration);
    assert!(refused.to_string().contains("connect to the primary"), "{refused}");
    let message = crate::place::message("m", postdate_core::Due::NOW);
    let mut error = store.store(std::slice::from_ref(&message)).await.unwrap_err();
    if !error.to_string().contains("primary") {
        // That was a connection of before.
        error = store.store(&[message]).await.unwrap_err();
    }
    assert!(error.is_transient() && error.to_string().contains("connect to the primary"), "{error}");
}
