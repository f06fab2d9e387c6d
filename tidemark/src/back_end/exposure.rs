//! Exposed secrets: others can read them on this machine or in transit, or they are easy to guess.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use log::config::{KafkaConfig, SecurityProtocol};

use crate::settings::Settings;

/// Permissions of anybody but the owner.
const OTHERS: u32 = 0o077;

/// Warns of each exposed secret. The process still runs: a network may be closed, and a file system may have no modes.
pub(crate) fn warn(settings: &Settings) {
    for exposed in exposed(settings) {
        tracing::warn!("{exposed}");
    }
}

fn exposed(settings: &Settings) -> Vec<String> {
    let mut all = Vec::new();
    if let log::config::BackEnd::Kafka(KafkaConfig { security, .. }) = &settings.log.back_end
        && security.protocol == SecurityProtocol::SaslPlaintext
        && security.mechanism.as_deref() == Some("PLAIN")
    {
        all.push(
            "the password of the brokers is sent without encryption: set log.security_protocol to \"sasl_ssl\", or \
             log.sasl_mechanism to \"SCRAM-SHA-512\""
                .to_owned(),
        );
    }
    if let store::config::BackEnd::Cql(cql) = &settings.store
        && cql.password.is_some()
        && cql.ca_file.is_none()
    {
        all.push(
            "the password of the tables is sent without encryption: set store.ca_file".to_owned(),
        );
    }
    all.extend(settings.shop.weak_secrets());
    let readable = settings.secret_files.iter().filter(|file| is_readable_by_others(file));
    all.extend(readable.map(|file| {
        let file = file.display();
        format!(
            "other users of this machine can read {file}, which has a secret: give it mode 0600"
        )
    }));
    all
}

fn is_readable_by_others(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|found| found.permissions().mode() & OTHERS != 0)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    const BROKERS: &str = "the password of the brokers is sent without encryption";
    const TABLES: &str = "the password of the tables is sent without encryption";

    #[track_caller]
    fn check(settings: &Settings, expected: &[&str]) {
        let found = exposed(settings);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(found.iter().zip(expected).all(|(line, part)| line.contains(part)), "{found:?}");
    }

    #[test]
    fn passwords_on_an_open_network_are_warned_of() {
        let user = "sasl_username = \"u\"\nsasl_password = \"p\"\n";
        let kafka = |protocol: &str, more: &str| {
            let log = "[log]\nbackend = \"kafka\"\nbrokers = \"b:1\"\n";
            Settings::parse(&format!("{log}security_protocol = \"{protocol}\"\n{more}"), &[])
                .unwrap()
        };
        for (protocol, mechanism, expected) in [
            ("sasl_plaintext", "PLAIN", &[BROKERS][..]),
            ("sasl_plaintext", "SCRAM-SHA-512", &[]),
            ("sasl_ssl", "PLAIN", &[]),
        ] {
            let mechanism = format!("sasl_mechanism = \"{mechanism}\"\n{user}");
            check(&kafka(protocol, &mechanism), expected);
        }
        check(&kafka("plaintext", ""), &[]);
        let (user, trust) = ("username = \"u\"\npassword = \"p\"\n", "ca_file = \"/etc/ca.pem\"\n");
        for (more, expected) in
            [(vec![user], &[TABLES][..]), (vec![user, trust], &[]), (vec![], &[])]
        {
            let store = "[store]\nbackend = \"cql\"\nnodes = [\"c:1\"]\n";
            let text = format!("{store}{}", more.concat());
            check(&Settings::parse(&text, &[]).unwrap(), expected);
        }
    }

    #[test]
    fn weak_keys_of_a_rotation_are_warned_of() {
        let settings = |more: &str| {
            let text = format!(
                "[admin]\nsecret = \"admin-5vN8xK2qL7wR\"\n[merchant]\n\
                 secret = \"merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5\"\n{more}"
            );
            Settings::parse(&text, &[]).unwrap()
        };
        let strong = "previous_secret = \"merchant-secret-8kT3vQ6zB1nM5xC7jW2hG9\"\n";
        check(&settings(strong), &[]);
        let weak = "previous_secret = \"coffee-shop\"\nprevious_link_secret = \"tea-shop-2026\"\n";
        let expected = ["merchant.previous_secret is too easy", "merchant.previous_link_secret is"];
        check(&settings(weak), &expected);
    }

    #[test]
    fn files_that_others_can_read_are_warned_of() {
        let dir = tempfile::tempdir().unwrap();
        let [config, secret] = ["tidemark.toml", "admin-secret"].map(|name| dir.path().join(name));
        let text = "[admin]\nsecret_file = \"admin-secret\"\n[merchant]\n\
                    secret = \"merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5\"\n";
        std::fs::write(&config, text).unwrap();
        std::fs::write(&secret, "admin-5vN8xK2qL7wR\n").unwrap();
        for (of_config, of_secret, expected) in [
            (0o600, 0o400, &[][..]),
            (0o644, 0o600, &["tidemark.toml, which has a secret"]),
            (0o600, 0o640, &["admin-secret, which has a secret"]),
            (0o604, 0o444, &["tidemark.toml", "admin-secret"]),
        ] {
            for (file, mode) in [(&config, of_config), (&secret, of_secret)] {
                std::fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
            }
            check(&Settings::load(Some(&config), &[]).unwrap(), expected);
        }
    }
}
