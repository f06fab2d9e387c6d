//! An alert as an e-mail.

use std::time::Duration;

use lettre::message::header::ContentType;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};
use schemas::record::Alert;
use schemas::{AlertState, Secret};

use super::config::{Encryption, Mail};
use crate::error::Error;

/// Maximum length of a subject, in characters.
const SUBJECT_CHARS_MAX: usize = 120;
/// Maximum duration of an SMTP session: a server that greets or filters slowly may still accept the message.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Sends to one mail server.
pub(super) struct Mailer {
    config: Mail,
    transport: AsyncSmtpTransport<Tokio1Executor>,
}

impl Mailer {
    /// Makes the client of the mail server.
    ///
    /// # Errors
    /// The mail is to be encrypted, and the host name is invalid, or the system has no trusted certificates.
    pub(super) fn new(config: &Mail) -> Result<Self, Error> {
        let mut builder =
            AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&config.host).port(config.port);
        let parameters = || TlsParameters::new_rustls(config.host.clone()).map_err(Error::Mail);
        builder = builder.timeout(Some(TIMEOUT)).tls(match config.tls {
            Encryption::None => Tls::None,
            Encryption::StartTls => Tls::Required(parameters()?),
            Encryption::Whole => Tls::Wrapper(parameters()?),
        });
        if let Some((name, password)) = &config.login {
            let password = String::from_utf8_lossy(password.expose()).into_owned();
            builder = builder.credentials(Credentials::new(name.clone(), password));
        }
        Ok(Self { config: config.clone(), transport: builder.build() })
    }

    /// Secrets to mask in responses.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.config.login.iter().map(|(_, password)| password)
    }

    /// Returns the server's response, or the cause of a failure.
    pub(super) async fn send(&self, alert: &Alert, event_id: &str) -> Result<String, String> {
        let letter = self.letter(alert, event_id).map_err(|error| error.to_string())?;
        match tokio::time::timeout(TIMEOUT, self.transport.send(letter)).await {
            Ok(Ok(answer)) => {
                let lines: Vec<_> = answer.message().collect();
                Ok(format!("{} {}", answer.code(), lines.join(" ")))
            }
            // The error's text includes its source.
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    fn letter(&self, alert: &Alert, event_id: &str) -> Result<Message, lettre::error::Error> {
        let Alert { alert_id, kind, state, message, raised_at, .. } = alert;
        let subject = format!("[tidemark] {state} {kind}: {}", begin(message));
        let mut text = format!("{message}\r\n\r\nalert: {alert_id}\r\n");
        let when = if *state == AlertState::Raised { "raised" } else { "resolved" };
        text.push_str(&format!("{when}: {}\r\n", raised_at.to_rfc3339()));
        // Equal for all attempts, so that clients detect duplicates.
        let id: String =
            event_id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        // One mail to all: a retry of separate mails would repeat those that were accepted.
        let builder = self.config.to.iter().fold(Message::builder(), |b, to| b.to(to.clone()));
        builder
            .from(self.config.from.clone())
            .subject(subject)
            .message_id(Some(format!("<{id}@tidemark>")))
            .header(ContentType::TEXT_PLAIN)
            .body(text)
    }
}

/// First characters of a message, in one line.
fn begin(message: &str) -> String {
    message.chars().take(SUBJECT_CHARS_MAX).collect::<String>().replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_one_short_line() {
        assert_eq!(begin("no\nsecond"), "no second");
        assert_eq!(begin(&"x".repeat(SUBJECT_CHARS_MAX + 1)), "x".repeat(SUBJECT_CHARS_MAX));
    }
}
