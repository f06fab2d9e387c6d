//! Metrics of the processor, beyond those of every group (`tidemark_log_group_*`).

use schemas::{AlertKind, Blockchain};

/// The kinds of alerts that the machines write.
const ALERTS: &[&str] = &[
    AlertKind::ConfirmedTransferRetracted.as_str(),
    AlertKind::StaleTransfer.as_str(),
    AlertKind::AmountsTaken.as_str(),
    AlertKind::HeadWentBack.as_str(),
    AlertKind::HeadTooFar.as_str(),
    AlertKind::PaymentsStopped.as_str(),
];

runtime::metrics! {
    /// Records written by committed steps.
    Counter OUTPUTS_TOTAL = "tidemark_processor_outputs_total" [topic];
    /// Lead of the clock over the newest block of all chains. Far above a block interval, the clock is
    /// wrong, or no chain is followed.
    Gauge CLOCK_AHEAD_SECONDS = "tidemark_processor_clock_ahead_seconds" [];
    /// Alerts written to the log. `amounts_taken`: no amount was free for a deposit at a wallet. `head_went_back` and
    /// `head_too_far`: a head was ignored, so it confirmed nothing; each at most once per lane and hour of chain time.
    Counter ALERTS_TOTAL = "tidemark_processor_alerts_total" [kind in ALERTS, blockchain in Blockchain::WORDS];
    /// Share of tried amounts that were taken, over the last deposits. Near 1, add wallets.
    Gauge AMOUNTS_IN_USE = "tidemark_processor_amounts_in_use_ratio" [blockchain, stablecoin];
    /// Emergency stops in force, in the lane with the most. While above 0, payments in their scope match no order.
    Gauge STOPS = "tidemark_processor_stops" [blockchain];
    /// Rows in memory.
    Gauge ROWS = "tidemark_processor_rows" [machine];
}
