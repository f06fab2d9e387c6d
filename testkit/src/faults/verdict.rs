//! The oracle: compares the payments in the receipts of all blocks with the pipeline's results. It does not use log
//! queries, endpoints, heads or confirmations.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::node_state::{TRANSFER, hex_number};

/// Number of blocks that one batch request reads.
const BATCH_BLOCKS: u64 = 200;

/// A transfer on the chain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Payment {
    pub tx: String,
    pub to: String,
    /// Amount in the smallest units of the coin.
    pub units: u128,
    /// Timestamp of its block, in Unix seconds.
    pub time: i64,
}

/// A transfer in the books.
#[derive(Debug, Clone)]
pub struct Claim {
    pub tx: String,
    pub to: String,
    pub units: u128,
    pub is_confirmed: bool,
    /// `true` if it is retracted in the books.
    pub has_left: bool,
    /// The order that it paid.
    pub order: Option<String>,
}

/// An order in the books.
#[derive(Debug, Clone)]
pub struct Ordered {
    pub id: String,
    pub status: String,
    /// Address that the customer is to pay, and the amount (`units`).
    pub to: String,
    pub units: u128,
    /// Latest timestamp of a block whose transfers pay it, in Unix seconds.
    pub expires_at: i64,
}

/// The books: final results of the pipeline.
#[derive(Debug, Clone, Default)]
pub struct Booked {
    pub claims: Vec<Claim>,
    pub orders: Vec<Ordered>,
}

/// Payments on the chain, and the differences between them and the books.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    pub payments: Vec<Payment>,
    pub problems: Vec<String>,
}

impl Verdict {
    /// Reads the chain at a node from its first block to its head, for one coin and some wallets.
    /// Addresses are compared in lower case.
    pub async fn of(url: &str, token: &str, wallets: &[String], booked: &Booked) -> Self {
        let payments = payments(url, token, wallets).await;
        let mut problems = compare(&payments, &booked.claims);
        problems.extend(booked.orders.iter().filter_map(|order| judge(order, &payments, booked)));
        Self { payments, problems }
    }
}

/// The identity of a transfer, without the log index, about which nodes differ. Equal transfers of a transaction are
/// counted.
type Key<'a> = (&'a str, &'a str, u128);

impl Payment {
    fn key(&self) -> Key<'_> {
        (&self.tx, &self.to, self.units)
    }
}

impl Claim {
    fn key(&self) -> Key<'_> {
        (&self.tx, &self.to, self.units)
    }
}

/// Lists payments and confirmed claims that do not match one to one, and claims still open.
fn compare(payments: &[Payment], claims: &[Claim]) -> Vec<String> {
    let mut counts: BTreeMap<Key<'_>, (usize, usize)> = BTreeMap::new();
    for payment in payments {
        counts.entry(payment.key()).or_default().0 += 1;
    }
    for claim in claims.iter().filter(|claim| claim.is_confirmed && !claim.has_left) {
        counts.entry(claim.key()).or_default().1 += 1;
    }
    let open = claims.iter().filter(|claim| !claim.is_confirmed && !claim.has_left);
    let open = open.map(|claim| format!("open: {claim:?}"));
    let differences = counts.into_iter().filter_map(|(payment, (own, booked))| {
        let what = if own > booked { "omission" } else { "invention" };
        (own != booked).then(|| {
            format!("{what}: {payment:?} is {own} times on the chain, {booked} in the books")
        })
    });
    differences.chain(open).collect()
}

/// Checks the end of an order: paid if the chain has its payment in time, else expired.
fn judge(order: &Ordered, payments: &[Payment], booked: &Booked) -> Option<String> {
    let fits = |payment: &&Payment| {
        (payment.to.as_str(), payment.units) == (order.to.as_str(), order.units)
            && payment.time <= order.expires_at
    };
    let in_time: Vec<_> = payments.iter().filter(fits).collect();
    let payers = booked.claims.iter().filter(|claim| claim.order.as_deref() == Some(&order.id));
    let payers: Vec<_> = payers.collect();
    let is_own = |claim: &Claim| in_time.iter().any(|payment| payment.key() == claim.key());
    match (in_time.is_empty(), order.status.as_str(), payers.as_slice()) {
        (false, "paid", [payer]) if is_own(payer) => None,
        (true, "expired", []) => None,
        (false, "paid", _) => Some(format!("payer: {order:?} by {payers:?}, not by {in_time:?}")),
        (true, "paid", _) => Some(format!("unpaid: {order:?} by {payers:?}")),
        (false, ..) => Some(format!("paid in time: {order:?} by {in_time:?}")),
        (true, ..) => Some(format!("not ended: {order:?}")),
    }
}

async fn payments(url: &str, token: &str, wallets: &[String]) -> Vec<Payment> {
    let client = reqwest::Client::builder().no_proxy().build().expect("an HTTP client");
    let ask = async |calls: Vec<Value>| -> Vec<Value> {
        let body = Value::Array(calls);
        let answer = client.post(url).json(&body).send().await.expect("the node answers");
        let mut replies: Vec<Value> = answer.json().await.expect("a batch");
        replies.iter_mut().map(|reply| reply["result"].take()).collect()
    };
    let call = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let head = ask(vec![call("eth_blockNumber", json!([]))]).await;
    let head = hex_number(&head[0]).expect("a height");
    let mut payments = Vec::new();
    for from in (0..=head).step_by(usize::try_from(BATCH_BLOCKS).unwrap()) {
        let numbers = from..=head.min(from + BATCH_BLOCKS - 1);
        let both = |number: u64| {
            let number = format!("{number:#x}");
            [
                call("eth_getBlockByNumber", json!([number, false])),
                call("eth_getBlockReceipts", json!([number])),
            ]
        };
        let replies = ask(numbers.flat_map(both).collect()).await;
        for pair in replies.chunks(2) {
            let time = hex_number(&pair[0]["timestamp"]).expect("a time");
            let receipts = pair[1].as_array().expect("receipts");
            let good = receipts.iter().filter(|receipt| receipt["status"] == "0x1");
            let logs = good.flat_map(|receipt| receipt["logs"].as_array().expect("logs"));
            let read = |log| payment(log, token, wallets, i64::try_from(time).unwrap());
            payments.extend(logs.filter_map(read));
        }
    }
    payments.sort();
    payments
}

/// The payment in a log, if it is a transfer of the coin to a wallet and not of zero.
fn payment(log: &Value, token: &str, wallets: &[String], time: i64) -> Option<Payment> {
    let topics = log["topics"].as_array()?;
    let [signature, _, to] = topics.as_slice() else { return None };
    let to = format!("0x{}", to.as_str()?.get(26..)?);
    let units = u128::from_str_radix(log["data"].as_str()?.get(2..)?, 16).ok()?;
    let is_ours = signature.as_str()?.ends_with(TRANSFER)
        && log["address"].as_str()?.eq_ignore_ascii_case(token)
        && wallets.contains(&to)
        && units > 0;
    is_ours.then(|| Payment {
        tx: log["transactionHash"].as_str().unwrap_or_default().to_owned(),
        to,
        units,
        time,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALLET: &str = "0x11";

    fn payment(tx: &str, units: u128, time: i64) -> Payment {
        Payment { tx: tx.into(), to: WALLET.into(), units, time }
    }

    fn claim(tx: &str, units: u128, order: Option<&str>) -> Claim {
        Claim {
            tx: tx.into(),
            to: WALLET.into(),
            units,
            is_confirmed: true,
            has_left: false,
            order: order.map(str::to_owned),
        }
    }

    fn order(status: &str) -> Ordered {
        Ordered {
            id: "A".into(),
            status: status.into(),
            to: WALLET.into(),
            units: 5,
            expires_at: 100,
        }
    }

    fn problems(payments: &[Payment], claims: Vec<Claim>, orders: Vec<Ordered>) -> Vec<String> {
        let booked = Booked { claims, orders };
        let mut problems = compare(payments, &booked.claims);
        problems.extend(booked.orders.iter().filter_map(|order| judge(order, payments, &booked)));
        problems.into_iter().map(|text| text.split(':').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn each_kind_of_difference_is_found() {
        let (paid, late) = ([payment("t", 5, 100)], [payment("t", 5, 101)]);
        let mut left = claim("t", 5, None);
        left.has_left = true;
        let mut open = claim("t", 5, None);
        open.is_confirmed = false;
        let pays = || vec![claim("t", 5, Some("A"))];
        let one = |status| vec![order(status)];
        for (payments, claims, orders, expected) in [
            (&paid[..], pays(), one("paid"), &[][..]),
            (&late[..], vec![claim("t", 5, None)], one("expired"), &[]),
            (&paid[..], vec![], vec![], &["omission"]),
            (&paid[..], vec![left.clone()], vec![], &["omission"]),
            (&[], vec![left], vec![], &[]),
            (&[], vec![open], vec![], &["open"]),
            (&[], vec![claim("t", 5, None)], vec![], &["invention"]),
            (&paid[..], vec![claim("t", 5, None); 2], vec![], &["invention"]),
            (&paid[..], vec![claim("t", 5, None)], one("expired"), &["paid in time"]),
            (&paid[..], vec![claim("t", 5, None)], one("paid"), &["payer"]),
            (&late[..], pays(), one("paid"), &["unpaid"]),
            (&[], vec![], one("pending"), &["not ended"]),
        ] {
            assert_eq!(problems(payments, claims, orders), expected);
        }
    }

    #[test]
    fn equal_transfers_of_a_transaction_each_count() {
        let payments = [payment("t", 5, 100), payment("t", 5, 100)];
        let other = claim("t", 5, None);
        let pays = claim("t", 5, Some("A"));
        let paid = || vec![order("paid")];
        assert_eq!(problems(&payments, vec![pays.clone(), other], paid()), [""; 0]);
        assert_eq!(problems(&payments, vec![pays.clone()], paid()), ["omission"]);
        let thrice = vec![pays, claim("t", 5, None), claim("t", 5, None)];
        assert_eq!(problems(&payments, thrice, paid()), ["invention"]);
    }

    #[test]
    fn dust_in_the_transaction_of_a_payment_pays_nothing() {
        let payments = [payment("t", 5, 100), payment("t", 1, 100)];
        let books = |payer, dust| vec![claim("t", 5, payer), claim("t", 1, dust)];
        let paid = || vec![order("paid")];
        assert_eq!(problems(&payments, books(Some("A"), None), paid()), [""; 0]);
        assert_eq!(problems(&payments, books(None, Some("A")), paid()), ["payer"]);
    }
}
