//! What goes wrong with Kafka, in classes: each class has one answer.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::Error;

/// What a failed call of a transaction asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Another producer has the name, or the broker gave this one up: it is of no more use.
    Fenced,
    /// The transaction can only be aborted.
    Abort,
    /// The same call again.
    Again,
    /// Nothing is known: another producer, and a look at what happened.
    Renew,
}

/// What the client library says of an error.
#[derive(Debug, Clone, Copy, Default)]
struct Flags {
    fatal: bool,
    requires_abort: bool,
    retriable: bool,
}

const fn classify(flags: Flags) -> Class {
    match flags {
        Flags { fatal: true, .. } => Class::Fenced,
        Flags { requires_abort: true, .. } => Class::Abort,
        Flags { retriable: true, .. } => Class::Again,
        Flags { fatal: false, requires_abort: false, retriable: false } => Class::Renew,
    }
}

/// The class of an error of a transaction's call.
pub(super) fn class(error: &KafkaError) -> Class {
    match error {
        KafkaError::Transaction(error) => classify(Flags {
            fatal: error.is_fatal(),
            requires_abort: error.txn_requires_abort(),
            retriable: error.is_retriable(),
        }),
        // The binding's own wait before a commit ran out; the library was not asked yet.
        KafkaError::Flush(_) => Class::Again,
        _ => Class::Renew,
    }
}

/// How a member learns from a commit that it is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// It was silent for too long. It may join again.
    Evicted,
    /// Another one has its name.
    Superseded,
}

/// What an error says about the membership of the group, if anything.
pub(super) fn lost(error: &KafkaError) -> Option<Lost> {
    match error.rdkafka_error_code()? {
        RDKafkaErrorCode::FencedInstanceId => Some(Lost::Superseded),
        RDKafkaErrorCode::UnknownMemberId | RDKafkaErrorCode::IllegalGeneration => {
            Some(Lost::Evicted)
        }
        _ => None,
    }
}

/// An error of a client that could not be made: the configuration is wrong.
pub(super) fn of_client(error: &KafkaError) -> Error {
    match error {
        // Its text has the value of the setting, which may be a password.
        KafkaError::ClientConfig(_, what, key, _) => {
            Error::Fatal(format!("Kafka's client refuses {key}: {what}"))
        }
        other => Error::Fatal(format!("no client of Kafka: {other}")),
    }
}

/// What an error of a consumer means to whoever polls; none if the library deals with it.
pub(super) fn of_poll(error: &KafkaError) -> Option<Error> {
    let code = match error {
        KafkaError::MessageConsumptionFatal(code) => {
            return Some(Error::Fatal(format!("the consumer failed: {code}")));
        }
        other => other.rdkafka_error_code()?,
    };
    match code {
        // The library goes on behind what it cannot read; whoever counts money must not.
        RDKafkaErrorCode::BadMessage
        | RDKafkaErrorCode::BadCompression
        | RDKafkaErrorCode::NotImplemented => {
            Some(Error::Fatal(format!("records came damaged: {code}")))
        }
        RDKafkaErrorCode::AllBrokersDown => {
            Some(Error::Transient("no broker can be reached".to_owned()))
        }
        RDKafkaErrorCode::Authentication
        | RDKafkaErrorCode::SaslAuthenticationFailed
        | RDKafkaErrorCode::TopicAuthorizationFailed
        | RDKafkaErrorCode::GroupAuthorizationFailed
        | RDKafkaErrorCode::InvalidGroupId
        | RDKafkaErrorCode::InvalidSessionTimeout
        | RDKafkaErrorCode::InconsistentGroupProtocol
        | RDKafkaErrorCode::GroupMaxSizeReached
        | RDKafkaErrorCode::UnknownTopicOrPartition
        | RDKafkaErrorCode::UnknownTopic
        | RDKafkaErrorCode::UnknownPartition => Some(Error::Transient(code.to_string())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_of_flags_has_its_class() {
        let cases = [
            // fatal, abort, retriable
            ((false, false, false), Class::Renew),
            ((false, false, true), Class::Again),
            ((false, true, false), Class::Abort),
            ((false, true, true), Class::Abort),
            ((true, false, false), Class::Fenced),
            ((true, false, true), Class::Fenced),
            ((true, true, false), Class::Fenced),
            ((true, true, true), Class::Fenced),
        ];
        for ((fatal, requires_abort, retriable), expected) in cases {
            assert_eq!(classify(Flags { fatal, requires_abort, retriable }), expected);
        }
    }

    #[test]
    fn errors_of_the_binding_have_a_class() {
        let timed_out = RDKafkaErrorCode::OperationTimedOut;
        assert_eq!(class(&KafkaError::Flush(timed_out)), Class::Again);
        assert_eq!(class(&KafkaError::MessageProduction(timed_out)), Class::Renew);
        assert_eq!(class(&KafkaError::Canceled), Class::Renew);
    }

    #[test]
    fn only_three_codes_speak_of_the_membership() {
        let of = |code| lost(&KafkaError::ConsumerCommit(code));
        assert_eq!(of(RDKafkaErrorCode::FencedInstanceId), Some(Lost::Superseded));
        assert_eq!(of(RDKafkaErrorCode::UnknownMemberId), Some(Lost::Evicted));
        assert_eq!(of(RDKafkaErrorCode::IllegalGeneration), Some(Lost::Evicted));
        assert_eq!(of(RDKafkaErrorCode::RebalanceInProgress), None);
        assert_eq!(of(RDKafkaErrorCode::InvalidProducerEpoch), None);
        assert_eq!(lost(&KafkaError::Canceled), None);
    }

    #[test]
    fn a_poll_fails_only_for_what_the_caller_must_know() {
        let of = |code| of_poll(&KafkaError::MessageConsumption(code));
        let transient = |code| matches!(of(code), Some(Error::Transient(_)));
        assert!(transient(RDKafkaErrorCode::AllBrokersDown));
        assert!(transient(RDKafkaErrorCode::Authentication));
        assert!(transient(RDKafkaErrorCode::UnknownTopicOrPartition));
        assert!(transient(RDKafkaErrorCode::InvalidSessionTimeout));
        assert!(of(RDKafkaErrorCode::BrokerTransportFailure).is_none());
        assert!(of(RDKafkaErrorCode::PollExceeded).is_none());
        let fatal = KafkaError::MessageConsumptionFatal(RDKafkaErrorCode::FencedInstanceId);
        assert!(matches!(of_poll(&fatal), Some(Error::Fatal(_))));
    }

    /// Behind each of these the library leaves records out.
    #[test]
    fn damaged_records_end_the_reading() {
        for code in [
            RDKafkaErrorCode::BadMessage,
            RDKafkaErrorCode::BadCompression,
            RDKafkaErrorCode::NotImplemented,
        ] {
            let told = of_poll(&KafkaError::MessageConsumption(code));
            assert!(matches!(told, Some(Error::Fatal(_))), "{code}");
        }
    }

    #[test]
    fn a_refused_setting_does_not_tell_its_value() {
        let error = KafkaError::ClientConfig(
            rdkafka::types::RDKafkaConfRes::RD_KAFKA_CONF_INVALID,
            "is not valid".into(),
            "sasl.password".into(),
            "hunter2".into(),
        );
        let told = of_client(&error).to_string();
        assert!(told.contains("sasl.password") && !told.contains("hunter2"), "{told}");
    }
}
