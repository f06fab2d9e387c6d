//! Alert to resolve, and the reason.

use super::json;
use crate::alerts::AlertEnd;
use crate::error::Invalid;

json::fields! {
    /// The body of `POST /alerts/resolve`.
    Body { alert_id, reason }
}

/// Reads a body: the name of the alert, and the reason.
pub(crate) fn parse(body: &[u8]) -> Result<(String, Option<String>), Invalid> {
    let body: Body = json::only(body)?;
    let alert_id = json::text("alert_id", "string", body.alert_id)?;
    let reason = body.reason.map(|reason| json::text("reason", "string", Some(reason)));
    let reason = reason.transpose()?;
    if let Some(reason) = &reason {
        AlertEnd::check_reason(reason).map_err(|problem| Invalid::new("reason", problem))?;
    }
    Ok((alert_id, reason))
}
