//! An operator puts a dead letter back to where it was.

use super::Commands;
use crate::audit::Asker;
use crate::auth::Operator;
use crate::error::{Answer, Refusal};
use crate::letters::{Draft, letter_at};

impl Commands {
    /// Writes the record of a letter once more, if the log has it where the letter says.
    pub(crate) async fn replay_letter(&self, by: &Operator, number: i64) -> Answer<()> {
        let (log, asker, now) = (self.log.clone(), Asker::from(by), self.clock.now());
        let read = move || -> Answer<Draft> {
            let letter = letter_at(&*log, number)?.ok_or(Refusal::ResourceNotFound)?;
            let draft = Draft::of(letter, &asker, now).map_err(Refusal::NotPutBack)?;
            draft.compared(&*log, false)?.map_err(Refusal::NotPutBack)
        };
        let draft = tokio::task::spawn_blocking(read).await.map_err(|_| Refusal::Internal)??;
        // The audit first: nothing is done that is not on record.
        for record in draft.records() {
            self.produce(record).await?;
        }
        tracing::info!(letter = number, operator = %by.name, "an operator put a dead letter back");
        Ok(())
    }
}
