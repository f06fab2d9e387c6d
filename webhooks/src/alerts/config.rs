//! `[alerts]`: receivers and transports.

use std::collections::BTreeSet;

use lettre::message::Mailbox;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use runtime::config::Reader;
use schemas::{AlertKind, ReceiverPolicy, Secret};

use super::template::Template;

/// Maximum bytes of a sink's name.
const NAME_BYTES_MAX: usize = 32;
/// Maximum number of sinks: the positions of all must fit into the metadata of one offset commit.
const SINKS_MAX: usize = 50;

/// The sinks.
#[derive(Debug, Clone, Default)]
pub struct AlertsConfig {
    pub sinks: Vec<Sink>,
}

/// A receiver of alerts.
#[derive(Debug, Clone)]
pub struct Sink {
    /// Name in metrics, log lines and commands.
    pub name: String,
    /// Alert kinds that it receives; `None` means all.
    pub(crate) kinds: Option<Vec<AlertKind>>,
    pub(crate) target: Target,
}

/// Transport of alerts to a sink.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// By a signed webhook, like those to merchants.
    Webhook {
        url: Secret,
        secret: Secret,
    },
    /// By a request that the operator configured.
    Http {
        method: Method,
        url: Secret,
        headers: HeaderMap,
        body: Template,
    },
    Mail(Mail),
}

/// A mail server, sender and recipients.
#[derive(Debug, Clone)]
pub(crate) struct Mail {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: Encryption,
    pub(crate) login: Option<(String, Secret)>,
    pub(crate) from: Mailbox,
    pub(crate) to: Vec<Mailbox>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encryption {
    None,
    /// Starts in plain text; no message is sent before encryption.
    StartTls,
    /// Implicit TLS.
    Whole,
}

impl AlertsConfig {
    /// The commented defaults of the section.
    pub const DEFAULTS: &str = include_str!("default.toml");

    /// Reads the section `alerts`. Problems are collected in it.
    #[must_use]
    pub fn read(mut section: Reader, receivers: &ReceiverPolicy) -> Self {
        let mut sinks: Vec<Sink> = Vec::new();
        let mut names = BTreeSet::new();
        let readers = section.sections("sinks");
        if readers.len() > SINKS_MAX {
            section.problem("sinks", &format!("must be at most {SINKS_MAX}"));
        }
        for mut reader in readers {
            let name = reader.text("name");
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
            let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_plain);
            if !fits && !name.is_empty() {
                reader.problem("name", "must be up to 32 letters, digits, - and _");
            }
            if !name.is_empty() && !names.insert(name.clone()) {
                reader.problem("name", "is that of another sink");
            }
            let kinds = read_kinds(&mut reader);
            let target = match reader.text("type").as_str() {
                "webhook" => read_webhook(&mut reader, receivers),
                "http" => read_http(&mut reader, receivers),
                "mail" => read_mail(&mut reader),
                "" => None,
                _ => {
                    reader.problem("type", "must be \"webhook\", \"http\" or \"mail\"");
                    None
                }
            };
            // Without a target, a problem is already reported; unread keys would be reported as unknown, too.
            if target.is_some() {
                reader.finish();
            }
            sinks.extend(target.map(|target| Sink { name, kinds, target }));
        }
        section.finish();
        Self { sinks }
    }
}

fn read_kinds(reader: &mut Reader) -> Option<Vec<AlertKind>> {
    let texts = reader.texts("kinds")?;
    let mut kinds = Vec::new();
    for text in texts {
        match text.parse() {
            Ok(kind) => kinds.push(kind),
            Err(error) => reader.problem("kinds", &format!("{error}")),
        }
    }
    Some(kinds)
}

/// URL of a receiver. It may contain an API key, so it is a secret and can be read from a file.
fn read_url(reader: &mut Reader, receivers: &ReceiverPolicy) -> Option<Secret> {
    let url = reader.required_secret("url");
    let text = String::from_utf8_lossy(url.expose()).into_owned();
    if text.is_empty() {
        return None;
    }
    if let Err(refusal) = receivers.check(&text) {
        reader.problem("url", &refusal.to_string());
        return None;
    }
    Some(url)
}

fn read_webhook(reader: &mut Reader, receivers: &ReceiverPolicy) -> Option<Target> {
    let url = read_url(reader, receivers);
    let secret = reader.required_secret("secret");
    Some(Target::Webhook { url: url?, secret })
}

fn read_http(reader: &mut Reader, receivers: &ReceiverPolicy) -> Option<Target> {
    let url = read_url(reader, receivers);
    let method = match reader.given_text("method").as_deref() {
        None | Some("POST") => Some(Method::POST),
        Some("PUT") => Some(Method::PUT),
        Some(_) => {
            reader.problem("method", "must be \"POST\" or \"PUT\"");
            None
        }
    };
    let mut headers = HeaderMap::new();
    let mut section = reader.section("headers");
    for name in section.keys() {
        let value = section.text(&name);
        let parsed = HeaderName::try_from(&name).ok().zip(HeaderValue::try_from(&value).ok());
        match parsed {
            Some((header, mut value)) => {
                value.set_sensitive(true);
                headers.insert(header, value);
            }
            None => section.problem(&name, "must be the name of a header with a text in one line"),
        }
    }
    section.finish();
    let json = HeaderValue::from_static("application/json");
    headers.entry(CONTENT_TYPE).or_insert(json);
    let body = reader.secret("body");
    if body.is_none() {
        reader.problem("body", "is missing: give body or body_file");
    }
    let text = body.map(|body| String::from_utf8_lossy(body.expose()).into_owned())?;
    let body = Template::parse(&text).map_err(|problem| reader.problem("body", &problem)).ok();
    Some(Target::Http { method: method?, url: url?, headers, body: body? })
}

fn read_mail(reader: &mut Reader) -> Option<Target> {
    let host = reader.text("host");
    let tls = match reader.given_text("tls").as_deref() {
        None | Some("starttls") => Some(Encryption::StartTls),
        Some("tls") => Some(Encryption::Whole),
        Some("none") => Some(Encryption::None),
        Some(_) => {
            reader.problem("tls", "must be \"starttls\", \"tls\" or \"none\"");
            None
        }
    };
    let usual = match tls {
        Some(Encryption::Whole) => 465,
        Some(Encryption::None) => 25,
        Some(Encryption::StartTls) | None => 587,
    };
    let port = reader.optional_integer("port", 1..=65_535).unwrap_or(usual);
    let (username, password) = (reader.given_text("username"), reader.secret("password"));
    let is_half = username.is_some() != password.is_some();
    if is_half {
        reader.problem("username", "and password are given together");
    }
    let login = username.zip(password);
    if login.is_some() && tls == Some(Encryption::None) {
        reader.problem("password", "must not be sent without encryption: set tls");
    }
    let from = reader.parsed::<Mailbox>("from");
    let mut to = Vec::new();
    let texts = reader.texts("to").unwrap_or_default();
    if texts.is_empty() {
        reader.problem("to", "is missing");
    }
    for text in texts {
        match text.parse() {
            Ok(mailbox) => to.push(mailbox),
            Err(error) => reader.problem("to", &format!("{text:?}: {error}")),
        }
    }
    let port = u16::try_from(port).ok()?;
    Some(Target::Mail(Mail { host, port, tls: tls?, login, from: from?, to }))
}

#[cfg(test)]
pub(crate) mod tests {
    use runtime::config::{Problems, Source};

    use super::*;

    /// Configuration read from a text, and its problems.
    fn read(text: &str) -> (AlertsConfig, Vec<String>) {
        read_with(text, &ReceiverPolicy::default())
    }

    pub(crate) fn read_with(text: &str, receivers: &ReceiverPolicy) -> (AlertsConfig, Vec<String>) {
        let mut source = Source::parse(AlertsConfig::DEFAULTS, text, []);
        let config = AlertsConfig::read(source.section("alerts"), receivers);
        let problems = source.finish().err().map_or_else(Vec::new, |Problems(lines)| lines);
        (config, problems)
    }

    const ALL: &str = "
        [[alerts.sinks]]
        name = 'pager'
        type = 'webhook'
        url = 'https://ops.example/hook'
        secret = 'sink-secret-0123456789'
        kinds = ['chain_halted', 'late_find']
        [[alerts.sinks]]
        name = 'chat'
        type = 'http'
        url = 'https://chat.example/bot123456:token-of-the-bot/send'
        headers = { Authorization = 'Bearer key-of-the-header' }
        body = '{\"text\": \"{{message}}\"}'
        [[alerts.sinks]]
        name = 'mail'
        type = 'mail'
        host = 'mail.example'
        username = 'ops'
        password = 'password-of-the-mail'
        from = 'Tidemark <ops@shop.example>'
        to = ['a@shop.example', 'b@shop.example']";

    #[test]
    fn sinks_of_each_type_are_read_and_their_keys_hidden() {
        let (config, problems) = read(ALL);
        assert_eq!(problems, [""; 0]);
        let names: Vec<_> = config.sinks.iter().map(|sink| sink.name.as_str()).collect();
        assert_eq!(names, ["pager", "chat", "mail"]);
        let kinds = vec![AlertKind::ChainHalted, AlertKind::LateFind];
        assert_eq!(config.sinks[0].kinds, Some(kinds));
        let Target::Mail(mail) = &config.sinks[2].target else { panic!() };
        assert_eq!((mail.port, mail.tls, mail.to.len()), (587, Encryption::StartTls, 2));
        let shown = format!("{config:?}");
        for secret in ["sink-secret", "ops.example", "token-of", "key-of-the", "password-of"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
        assert!(read("").0.sinks.is_empty());
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let (_, problems) = read(
            "[[alerts.sinks]]
            name = 'a b'
            type = 'fax'
            [[alerts.sinks]]
            name = 'x'
            type = 'webhook'
            url = 'http://127.0.0.1/'
            kinds = ['nonsense']
            [[alerts.sinks]]
            name = 'x'
            type = 'http'
            url = 'https://chat.example/'
            method = 'GET'
            headers = { 'a b' = 'x' }
            body = '{{nonsense}}'
            [[alerts.sinks]]
            name = 'm'
            type = 'mail'
            host = 'mail.example'
            tls = 'none'
            username = 'ops'
            password = 'pw'
            from = 'nobody'
            to = ['nobody']",
        );
        for line in [
            "alerts.sinks[0].name: must be up to 32 letters",
            "alerts.sinks[0].type: must be \"webhook\", \"http\" or \"mail\"",
            "alerts.sinks[1].url: must not be the private address 127.0.0.1",
            "alerts.sinks[1].secret: is missing",
            "alerts.sinks[1].kinds: \"nonsense\" is not one of",
            "alerts.sinks[2].name: is that of another sink",
            "alerts.sinks[2].method: must be",
            "alerts.sinks[2].headers.a b: must be the name of a header",
            "alerts.sinks[2].body: has a field that is none of",
            "alerts.sinks[3].password: must not be sent without encryption",
            "alerts.sinks[3].from: ",
            "alerts.sinks[3].to: \"nobody\"",
        ] {
            assert!(problems.iter().any(|found| found.starts_with(line)), "{line}: {problems:#?}");
        }
        assert_eq!(problems.len(), 12, "{problems:#?}");
    }

    #[test]
    fn names_and_numbers_of_sinks_are_bounded() {
        let sink = |name: &str| {
            format!(
                "[[alerts.sinks]]\nname = '{name}'\ntype = 'webhook'\nurl = 'https://a.example/'\nsecret = 's'\n"
            )
        };
        let long = "x".repeat(NAME_BYTES_MAX);
        assert_eq!(read(&sink(&long)).1, [""; 0]);
        assert_eq!(read(&sink(&format!("{long}x"))).1.len(), 1);
        let many: String = (0..=SINKS_MAX).map(|number| sink(&number.to_string())).collect();
        assert_eq!(read(&many).1, ["alerts.sinks: must be at most 50"]);
    }
}
