//! Starts and ends stops of payments for operators: of a wallet, a coin, a contract or a chain.

use super::Commands;
use crate::auth::Operator;
use crate::error::{Answer, Invalid};
use crate::machine::stop;

impl Commands {
    /// Sends the command to each lane concerned. The stop is in force once the lanes have read it.
    pub(crate) async fn stop(&self, by: &Operator, body: &[u8], begins: bool) -> Answer<()> {
        let request = stop::parse(body, begins)?;
        if let Some(address) = request.address_to_stop() {
            let chains = self.store.chains().await?;
            let covered: Vec<_> = request.blockchains().collect();
            let lanes = chains.iter().filter(|lane| covered.contains(&lane.blockchain));
            let mut watched = lanes.flat_map(|lane| &lane.watched);
            let is_watched =
                watched.any(|of| of.wallet_address == address || of.contracts.contains(&address));
            if !is_watched {
                let on = request.chain().map_or("any chain".to_owned(), |of| of.to_string());
                return Err(Invalid::new("subject", format!("is not watched on {on}")).into());
            }
        }
        let now = self.clock.now();
        self.produce(request.audit(&by.into(), now)?).await?;
        let commands = request.commands(&self.log.layout(), now)?;
        self.log.produce(commands).await?;
        let (subject, operator) = (request.subject(), &by.name);
        if begins {
            tracing::warn!(subject, %operator, "an operator stopped payments");
        } else {
            tracing::warn!(subject, %operator, "an operator ended a stop of payments");
        }
        Ok(())
    }
}
