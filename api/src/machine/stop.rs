//! Request of an operator to stop or to resume payments.

use super::json;
use crate::error::Invalid;
use crate::stops::StopRequest;

json::fields! {
    /// The body of `POST /stops` and `POST /stops/end`.
    Body { subject, blockchain }
}

/// Reads a body. Unknown fields are refused, because a misspelt one would stop more than was meant.
pub(crate) fn parse(body: &[u8], begins: bool) -> Result<StopRequest, Invalid> {
    let body: Body = json::only(body)?;
    let subject = json::text("subject", "string", body.subject)?;
    let blockchain = json::optional("blockchain", body.blockchain)?;
    let request = StopRequest::parse(&subject, blockchain, begins);
    request.map_err(|problem| Invalid::new("subject", problem))
}
