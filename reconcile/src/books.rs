//! The orders of a period against the shop's own books.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};

use schemas::record::Order;
use schemas::{Amount, OrderId, OrderStatus, TransferId, TxHash};

use crate::sum::Sums;
use crate::{Difference, Join, Joined, Kind};

const COLUMNS: [&str; 3] = ["order_id", "status", "amount"];
const TRANSACTION: &str = "transaction_hash";

/// A line of the books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Book {
    /// The service's id of the order, or the shop's own.
    pub order_id: String,
    pub status: OrderStatus,
    pub amount: Amount,
    pub transaction_hash: Option<TxHash>,
}

/// The file cannot be read as books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BooksError {
    /// Line number, counted from 1.
    pub line: usize,
    pub what: String,
}

impl Display for BooksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for BooksError {}

/// Reads CSV with a header line: columns `order_id`, `status`, `amount` and, optionally, `transaction_hash`. Other
/// columns are ignored.
///
/// # Errors
/// [`BooksError`]: a missing header or column, an invalid cell, an open quote, or a duplicate order.
pub fn read_books(text: &str) -> Result<Vec<Book>, BooksError> {
    let failed = |line: usize, what: String| BooksError { line, what };
    let mut lines = text.trim_start_matches('\u{feff}').lines().zip(1..);
    let (head, _) = lines.next().ok_or_else(|| failed(1, "there is no line of names".into()))?;
    let names = cells(head).map_err(|what| failed(1, what.to_owned()))?;
    let position = |name: &str| names.iter().position(|found| found.trim() == name);
    let mut places = [0; 3];
    for (place, name) in places.iter_mut().zip(COLUMNS) {
        *place = position(name).ok_or_else(|| failed(1, format!("there is no column {name}")))?;
    }
    let transaction = position(TRANSACTION);
    let (mut books, mut known) = (Vec::new(), BTreeSet::new());
    for (text, line) in lines.filter(|(text, _)| !text.trim().is_empty()) {
        let found = cells(text).map_err(|what| failed(line, what.to_owned()))?;
        let cell = |at: usize| found.get(at).map_or("", |cell| cell.trim());
        let wrong = |name: &str, why: &dyn Display| failed(line, format!("{name}: {why}"));
        let [order_id, status, amount] = places.map(cell);
        if order_id.is_empty() {
            return Err(wrong("order_id", &"is empty"));
        }
        if !known.insert(order_id.to_owned()) {
            return Err(wrong("order_id", &format!("{order_id} is there twice")));
        }
        let hash = transaction.map(cell).filter(|hash| !hash.is_empty());
        books.push(Book {
            order_id: order_id.to_owned(),
            status: status.parse().map_err(|error| wrong("status", &error))?,
            amount: Amount::parse(amount).map_err(|error| wrong("amount", &error))?,
            transaction_hash: hash
                .map(str::parse)
                .transpose()
                .map_err(|error| wrong(TRANSACTION, &error))?,
        });
    }
    Ok(books)
}

/// Cells of a line of CSV (RFC 4180). Line breaks in cells are not supported.
fn cells(line: &str) -> Result<Vec<String>, &'static str> {
    let (mut cells, mut cell, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' if is_quoted || cell.is_empty() => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(std::mem::take(&mut cell)),
            other => cell.push(other),
        }
    }
    if is_quoted {
        return Err("a quote is not closed");
    }
    cells.push(cell);
    Ok(cells)
}

/// Compares the books with the orders that changed in the period. `paid` are the orders paid in it, which must be in
/// the books. `transactions` has the transaction of each known transfer.
#[must_use]
pub fn compare_books(
    books: &[Book],
    orders: &BTreeMap<OrderId, &Order>,
    paid: &BTreeSet<OrderId>,
    transactions: &BTreeMap<TransferId, TxHash>,
) -> Joined {
    let mut references: BTreeMap<&str, Vec<&Order>> = BTreeMap::new();
    for order in orders.values() {
        references.entry(order.merchant_order_id.as_str()).or_default().push(order);
    }
    let (mut sums, mut found) = (Sums::default(), BTreeSet::new());
    let mut differences = Vec::new();
    for book in books {
        let by_id = book.order_id.parse().ok().and_then(|id| orders.get(&id).copied());
        let named = references.get(book.order_id.as_str()).map(Vec::as_slice).unwrap_or_default();
        let Some(order) = by_id.or_else(|| meant(book, named, paid, transactions)) else {
            let what = format!(
                "order {}: in the books, not among the orders of the period",
                book.order_id
            );
            differences.push(difference(Kind::NotAnOrder, what, lookup(&book.order_id)));
            continue;
        };
        found.insert(order.order_id);
        match wrong(book, order, transactions) {
            None => sums.add(order.stablecoin, order.status.as_str(), order.amount),
            Some((kind, what)) => {
                let cure =
                    format!("correct the books; GET /api/v1/admin/orders/{}", order.order_id);
                differences.push(difference(kind, what, cure));
            }
        }
    }
    for order in paid.difference(&found).filter_map(|id| orders.get(id)) {
        let (id, reference, amount) = (order.order_id, &order.merchant_order_id, order.amount);
        let what = format!("order {id} ({reference}): paid {amount}, not in the books");
        let cure = format!("tidemark tail orders --key {id} --until-end, and book it");
        differences.push(difference(Kind::NotInBooks, what, cure));
    }
    Joined { totals: sums.totals(Join::Books, None), differences, waiting: 0 }
}

/// The order that a line of the books is about, of those with its reference: a repeated request or another attempt of a
/// customer may have made several. The one that agrees, else one that must be in the books.
fn meant<'a>(
    book: &Book,
    named: &[&'a Order],
    paid: &BTreeSet<OrderId>,
    transactions: &BTreeMap<TransferId, TxHash>,
) -> Option<&'a Order> {
    let agrees = named.iter().find(|order| wrong(book, order, transactions).is_none());
    let is_paid = || named.iter().find(|order| paid.contains(&order.order_id));
    agrees.or_else(is_paid).or(named.last()).copied()
}

/// Cure of an order that only the books have, by the service's id or the shop's own.
fn lookup(id: &str) -> String {
    let by_id = id.parse::<OrderId>().map(|_| format!("/{id} or ")).unwrap_or_default();
    format!(
        "GET /api/v1/admin/orders{by_id}?merchant_order_id={id}; if it is not there, create it again and attach its \
         transfer (docs/merchant/admin.md)"
    )
}

fn difference(kind: Kind, what: String, cure: String) -> Difference {
    Difference { join: Join::Books, kind, blockchain: None, what, cure }
}

/// The first field in which a line of the books differs from its order.
fn wrong(
    book: &Book,
    order: &Order,
    transactions: &BTreeMap<TransferId, TxHash>,
) -> Option<(Kind, String)> {
    let id = order.order_id;
    let differs = |book: &dyn Display, order: &dyn Display| {
        format!("order {id}: {book} in the books, {order} on the topics")
    };
    if book.status != order.status {
        return Some((Kind::BooksStatus, differs(&book.status, &order.status)));
    }
    if book.amount != order.amount {
        return Some((Kind::BooksAmount, differs(&book.amount, &order.amount)));
    }
    let hash = book.transaction_hash?;
    let paid_with = match order.paid_by {
        None => "no transaction".to_owned(),
        // A transfer of another period is unknown here, so its transaction is not compared.
        Some(by) => transactions.get(&by).filter(|known| **known != hash)?.to_string(),
    };
    let what = format!("order {id}: paid in {hash} by the books, in {paid_with} on the topics");
    Some((Kind::BooksTransaction, what))
}

#[cfg(test)]
mod tests {
    use schemas::Hash;
    use schemas::record::example;

    use super::*;

    const HEAD: &str = "order_id,status,amount,transaction_hash\n";

    #[test]
    fn books_are_read_as_spreadsheets_write_them() {
        let hash = Hash([7; 32]);
        let text = format!(
            "\u{feff}note,amount, order_id ,status,transaction_hash\r\n\"a, \"\"b\"\"\",\"10.50\",A-1,paid,{hash}\r\n\r\nx,3,\
             \"A,2\",pending,\r\n"
        );
        let books = read_books(&text).unwrap();
        let [first, second] = &books[..] else { panic!("{books:?}") };
        assert_eq!((&*first.order_id, first.transaction_hash), ("A-1", Some(hash)));
        assert_eq!(first.amount.to_string(), "10.50");
        assert_eq!((&*second.order_id, second.status), ("A,2", OrderStatus::Pending));
        assert_eq!(second.transaction_hash, None);
        assert_eq!(read_books("order_id,status,amount\n"), Ok(Vec::new()));
    }

    #[test]
    fn what_is_wrong_in_books_is_named() {
        for (text, expected) in [
            ("", "line 1: there is no line of names"),
            ("order_id,amount\n", "line 1: there is no column status"),
            ("order_id,status,amount\n,paid,1", "line 2: order_id: is empty"),
            ("order_id,status,amount\nA,paid,1,0", "line 2: amount: must"),
            ("order_id,status,amount\nA,payed,1", "line 2: status: \"payed\" is not one of"),
            ("order_id,status,amount\nA,paid,1e3", "line 2: amount: must be a decimal"),
            ("order_id,status,amount\n\"A,paid,1", "line 2: a quote is not closed"),
            ("order_id,status,amount\nA,paid,1\nA,paid,1", "line 3: order_id: A is there twice"),
            (&format!("{HEAD}A,paid,1,0xabc"), "line 2: transaction_hash: "),
        ] {
            let Err(error) = read_books(text) else {
                assert!(text.ends_with(",0"), "{text}: cells beyond the names are passed over");
                continue;
            };
            assert!(error.to_string().starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn an_order_of_the_books_alone_is_looked_up() {
        let id = example::order().order_id.to_string();
        let both = format!("/{id} or ?merchant_order_id={id};");
        for (book, path) in [(&*id, both), ("Z-9", "?merchant_order_id=Z-9;".into())] {
            let books = read_books(&format!("{HEAD}{book},paid,1,")).unwrap();
            let none = BTreeMap::new();
            let joined = compare_books(&books, &none, &BTreeSet::new(), &BTreeMap::new());
            let [difference] = &joined.differences[..] else { panic!("{joined:?}") };
            let get = format!("GET /api/v1/admin/orders{path} ");
            assert!(difference.cure.starts_with(&get), "{}", difference.cure);
            assert!(difference.cure.contains("create it again"), "{}", difference.cure);
        }
    }

    #[test]
    fn every_line_agrees_with_its_order() {
        let (hash, other) = (Hash([7; 32]), Hash([8; 32]));
        let paid_by = Some(TransferId(5));
        let order = Order { status: OrderStatus::Paid, paid_by, ..example::order() };
        let by_hand = Order { paid_by: None, ..order.clone() };
        let kinds = |lines: &str, order: &Order, is_paid: bool| {
            let orders = BTreeMap::from([(order.order_id, order)]);
            let paid = orders.keys().copied().filter(|_| is_paid).collect();
            let known = BTreeMap::from([(TransferId(5), hash)]);
            let books = read_books(&format!("{HEAD}{lines}")).unwrap();
            let joined = compare_books(&books, &orders, &paid, &known);
            joined.differences.iter().map(|one| one.kind).collect::<Vec<_>>()
        };
        let (id, reference) = (order.order_id, &order.merchant_order_id);
        assert_eq!(kinds(&format!("{id},paid,10.5,{hash}"), &order, true), []);
        assert_eq!(kinds(&format!("{reference},paid,10.50,"), &order, true), []);
        assert_eq!(kinds(&format!("{id},paid,10.51,"), &order, true), [Kind::BooksAmount]);
        assert_eq!(kinds(&format!("{id},expired,10.5,"), &order, true), [Kind::BooksStatus]);
        let wrong = format!("{id},paid,10.5,{other}");
        assert_eq!(kinds(&wrong, &order, true), [Kind::BooksTransaction]);
        assert_eq!(kinds(&wrong, &by_hand, true), [Kind::BooksTransaction]);
        assert_eq!(kinds("", &order, true), [Kind::NotInBooks]);
        assert_eq!(kinds("", &order, false), []);
        assert_eq!(kinds("Z-9,paid,1,", &order, false), [Kind::NotAnOrder]);
    }

    #[test]
    fn a_line_is_of_the_order_that_agrees_with_it() {
        use OrderStatus::{Expired, Paid};
        let orders = |statuses: [OrderStatus; 2]| {
            [1, 2].map(|number| Order {
                order_id: OrderId(uuid::Uuid::from_u128(number)),
                status: statuses[usize::from(number == 2)],
                ..example::order()
            })
        };
        let kinds = |statuses, line: &str| {
            let orders = orders(statuses);
            let is_paid = |order: &&Order| order.status == Paid;
            let paid = orders.iter().filter(is_paid).map(|order| order.order_id).collect();
            let orders = orders.iter().map(|order| (order.order_id, order)).collect();
            let books = format!("{HEAD}{},{line}", example::order().merchant_order_id);
            let books = read_books(&books).unwrap();
            let joined = compare_books(&books, &orders, &paid, &BTreeMap::new());
            joined.differences.iter().map(|one| one.kind).collect::<Vec<_>>()
        };
        for statuses in [[Paid, Expired], [Expired, Paid]] {
            assert_eq!(kinds(statuses, "paid,10.5,"), []);
            assert_eq!(kinds(statuses, "paid,10.51,"), [Kind::BooksAmount]);
            assert_eq!(kinds(statuses, "expired,10.5,"), [Kind::NotInBooks]);
        }
        assert_eq!(kinds([Paid, Paid], "paid,10.5,"), [Kind::NotInBooks], "two were paid");
    }
}
