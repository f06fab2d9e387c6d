//! Resolution of an alert by an operator.

use log::OpenAlerts;

use super::Commands;
use crate::alerts::AlertEnd;
use crate::auth::Operator;
use crate::error::{Answer, Refusal};
use crate::machine::alert;

impl Commands {
    /// Resolves an open alert.
    pub(crate) async fn resolve_alert(&self, by: &Operator, body: &[u8]) -> Answer<()> {
        let (alert_id, reason) = alert::parse(body)?;
        let log = self.log.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mut open = OpenAlerts::default();
            open.refresh(&*log).map(|()| open)
        });
        let open = read.await.map_err(|_| Refusal::Internal)??;
        let end = AlertEnd::of(&open, &alert_id, reason).ok_or(Refusal::ResourceNotFound)?;
        let now = self.clock.now();
        let asker = by.into();
        self.produce(end.audit(&asker, now)?).await?;
        self.produce(end.record(&asker, now)?).await?;
        tracing::info!(alert.id = alert_id, operator = %by.name, "an operator resolved an alert");
        Ok(())
    }
}
