//! Dead webhooks, and the choice of those to resend: by `tidemark webhook dead` and by the operators' console alike.
//!
//! A redrive sends the present event of an order or a transfer, as the Admin API does: a replayed record could deliver
//! an old status after a newer one.

use std::collections::BTreeMap;

use schemas::record::{AuditEntry, Delivery};
use schemas::{AttemptOutcome, AuditAction, DeliveryKind, OrderId, Partition, Topic, UnixMicros};
use url::Url;

use crate::inspect::reader::{Pages, Reader};
use crate::machine::survey::Subject;

/// Filter of dead webhooks; an empty field matches any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The host of the receiver.
    pub host: Option<String>,
    /// Given up at this time or later.
    pub since: Option<UnixMicros>,
    /// Given up before this time.
    pub until: Option<UnixMicros>,
    /// Outcome of the last attempt.
    pub outcome: Option<AttemptOutcome>,
    pub kind: Option<DeliveryKind>,
    pub order: Option<OrderId>,
}

impl Filter {
    /// `true` if a webhook that was given up at a time matches.
    #[must_use]
    pub fn fits(&self, at: UnixMicros, delivery: &Delivery) -> bool {
        self.host.as_ref().is_none_or(|host| host_of(delivery).as_ref() == Some(host))
            && self.since.is_none_or(|since| since <= at)
            && self.until.is_none_or(|until| at < until)
            && self.outcome.is_none_or(|outcome| delivery.last_outcome == Some(outcome))
            && self.kind.is_none_or(|kind| delivery.kind == kind)
            && self.order.is_none_or(|order| delivery.order_id == Some(order))
    }
}

/// The host of the receiver.
#[must_use]
pub fn host_of(delivery: &Delivery) -> Option<String> {
    Url::parse(&delivery.url).ok()?.host_str().map(str::to_owned)
}

/// The order or the transfer of a webhook.
#[must_use]
pub fn subject_of(delivery: &Delivery) -> Option<Subject> {
    Subject::of(delivery.order_id, delivery.transfer_id)
}

/// Time of the last resend request of each subject, since a time.
pub fn asked<P: Pages>(
    reader: &mut Reader<P>,
    since: UnixMicros,
) -> Result<BTreeMap<Subject, UnixMicros>, P::Error> {
    let mut all = BTreeMap::new();
    reader.scan(Topic::Audit, [Partition(0)], (since, None), |_, entry: AuditEntry| {
        let is_resend =
            matches!(entry.action, AuditAction::ResendOrder | AuditAction::ResendTransfer);
        let subject = Subject::of(entry.order_id, entry.transfer_id);
        all.extend(subject.filter(|_| is_resend).map(|subject| (subject, entry.requested_at)));
    })?;
    Ok(all)
}
