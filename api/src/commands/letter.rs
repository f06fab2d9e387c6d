//! Replay of a dead letter by an operator.

use super::Commands;
use crate::audit::Asker;
use crate::auth::Operator;
use crate::error::{Answer, Refusal};
use crate::letters::{Draft, letter_at};

impl Commands {
    /// Appends a letter's record again, if the log has it at the letter's position.
    pub(crate) async fn replay_letter(&self, by: &Operator, number: i64) -> Answer<()> {
        let (log, asker, now) = (self.log.clone(), Asker::from(by), self.clock.now());
        let read = move || -> Answer<Draft> {
            let letter = letter_at(&*log, number)?.ok_or(Refusal::ResourceNotFound)?;
            let draft = Draft::of(letter, &asker, now).map_err(Refusal::NotPutBack)?;
            draft.compared(&*log, false)?.map_err(Refusal::NotPutBack)
        };
        let draft = tokio::task::spawn_blocking(read).await.map_err(|_| Refusal::Internal)??;
        // The audit entry first: no action goes unrecorded.
        for record in draft.records() {
            self.produce(record).await?;
        }
        tracing::info!(letter = number, operator = %by.name, "an operator put a dead letter back");
        Ok(())
    }
}
