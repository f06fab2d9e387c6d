//! Resolution of an alert by operators.

use log::{NewRecord, OpenAlerts};
use schemas::record::{Alert, AuditEntry};
use schemas::{AuditAction, CodecError, Partition, Topic, UnixMicros};

use crate::audit::{self, Asker};

const REASON_BYTES_MAX: usize = 500;

/// Resolution of an alert by an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertEnd {
    alert: Alert,
    reason: Option<String>,
}

impl AlertEnd {
    /// Resolution of the open alert with this id; `None` without one.
    #[must_use]
    pub fn of(open: &OpenAlerts, alert_id: &str, reason: Option<String>) -> Option<Self> {
        Some(Self { alert: open.get(alert_id)?.clone(), reason })
    }

    /// Returns the problem of a reason that has more than 500 bytes or control characters.
    pub fn check_reason(reason: &str) -> Result<(), String> {
        if reason.len() > REASON_BYTES_MAX {
            return Err(format!("must have at most {REASON_BYTES_MAX} bytes"));
        }
        if reason.chars().any(char::is_control) {
            return Err("must not have control characters".to_owned());
        }
        Ok(())
    }

    /// The alert to resolve.
    #[must_use]
    pub fn alert(&self) -> &Alert {
        &self.alert
    }

    /// Audit record of the request; written before [`Self::record`].
    pub fn audit(&self, by: &Asker, now: UnixMicros) -> Result<NewRecord, CodecError> {
        audit::record(&AuditEntry {
            order_id: self.alert.order_id,
            transfer_id: self.alert.transfer_id,
            subject: Some(self.alert.alert_id.clone()),
            ..by.entry(AuditAction::ResolveAlert, now)
        })
    }

    /// Record that resolves the alert.
    pub fn record(&self, by: &Asker, now: UnixMicros) -> Result<NewRecord, CodecError> {
        let reason = self.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let message = format!("resolved by {}{reason}", by.name());
        let key = self.alert.blockchain.map_or("", schemas::Blockchain::as_str);
        NewRecord::encode(
            Topic::Alerts,
            Partition(0),
            key,
            &self.alert.clone().resolve(message, now),
        )
    }
}

#[cfg(test)]
mod tests {
    use schemas::AlertState;
    use schemas::record::example;

    use super::*;

    #[test]
    fn an_end_has_its_operator_and_the_reason() {
        let (alert, now) = (example::alert(), UnixMicros(9));
        let mut open = OpenAlerts::default();
        assert_eq!(AlertEnd::of(&open, &alert.alert_id, None), None);
        open.apply(alert.clone());
        let end = AlertEnd::of(&open, &alert.alert_id, Some("refunded".to_owned())).unwrap();
        let by = Asker::command_line();
        let record = end.record(&by, now).unwrap();
        let written: Alert = schemas::decode(record.value.as_deref().unwrap()).unwrap();
        assert_eq!((written.state, written.raised_at), (AlertState::Resolved, now));
        assert_eq!(written.message, "resolved by command line: refunded");
        assert_eq!(written.alert_id, alert.alert_id);
        let audit = end.audit(&by, now).unwrap();
        let audit: AuditEntry = schemas::decode(audit.value.as_deref().unwrap()).unwrap();
        assert_eq!(audit.subject, Some(alert.alert_id));
        assert_eq!((audit.order_id, audit.transfer_id), (alert.order_id, alert.transfer_id));
    }

    #[test]
    fn a_reason_is_one_short_line() {
        let long = "x".repeat(REASON_BYTES_MAX);
        assert_eq!(AlertEnd::check_reason(&long), Ok(()));
        assert!(AlertEnd::check_reason(&format!("{long}x")).unwrap_err().contains("500 bytes"));
        assert!(AlertEnd::check_reason("a\nb").unwrap_err().contains("control characters"));
    }
}
