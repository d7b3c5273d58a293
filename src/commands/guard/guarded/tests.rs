use netlab::in_new_namespace;

use super::*;
use crate::plan::{DesiredState, Notices};

/// Rules that are as they should be, beside something that another program has done; and how long a
/// comparison takes.
struct Disturbed(apply::Guarded, Duration);

impl Rules for Disturbed {
    fn desired(&self) -> &apply::Guarded {
        &self.0
    }

    fn backend(&self) -> Option<Backend> {
        None
    }

    fn is_current(&self) -> bool {
        true
    }

    fn compared(&mut self) -> Result<Differences, Failure> {
        std::thread::sleep(self.1);
        let finding = Finding::new(Problem::TrafficLost, "app to 192.0.2.1:80 (IPv4) is lost");
        Ok(Differences {
            backend: Backend::Native,
            owned: Vec::new(),
            chains: Vec::new(),
            others: Vec::new(),
            forms: Vec::new(),
            is_untagged: false,
            notices: Notices { others: vec![finding], ..Notices::default() },
            of_pod: Vec::new(),
            has_no_rules: false,
            dormant: Vec::new(),
        })
    }

    fn repair(&mut self) -> Result<u64, Failure> {
        Ok(0)
    }
}

/// A notice that arrives when the rules have been compared, and what is reported.
struct Late(Option<Change>, Vec<Event>);

impl Driver for Late {
    fn take(&mut self) -> io::Result<Option<Vec<Change>>> {
        Ok(Some(self.0.take().into_iter().collect()))
    }

    fn report(&mut self, event: &Event) -> Result<(), Failure> {
        self.1.push(event.clone());
        Ok(())
    }
}

/// The kernel shows new rules before it announces the transaction.
#[test]
fn program_of_a_problem_is_named_if_its_notice_comes_after_the_rules_were_read() {
    in_new_namespace(|| {
        let settings = Settings {
            name: "guard",
            action: GuardAction::Report,
            audit: Duration::from_secs(30),
            patience: Duration::ZERO,
        };
        let mut guard =
            Guard::new(Disturbed(apply::Guarded::new(DesiredState::empty()), Duration::ZERO), settings);
        let change = Change { generation: 2, pid: 7, program: "nft".to_owned(), port: 7, namespace: None };
        let mut driver = Late(Some(change), Vec::new());
        guard.wake(&mut driver).unwrap();
        let by = driver
            .1
            .iter()
            .find_map(|event| if let Event::Found { by, .. } = event { Some(by.words()) } else { None });
        assert_eq!(by.as_deref(), Some(", changed by nft (pid 7)"), "{:?}", driver.1);
    });
}

/// The guards of a node, which start together, do not compare together.
#[test]
fn audits_follow_after_nine_to_ten_tenths_of_their_time_and_not_always_the_same() {
    let audit = Duration::from_secs(30);
    let settings = Settings { name: "guard", action: GuardAction::Report, audit, patience: Duration::ZERO };
    let guard = Guard::new(Disturbed(apply::Guarded::new(DesiredState::empty()), Duration::ZERO), settings);
    let times: Vec<Duration> = (0..50)
        .map(|_| {
            std::thread::sleep(Duration::from_micros(37));
            guard.until_audit()
        })
        .collect();
    let range = Duration::from_secs(27)..=audit;
    assert!(times.iter().all(|time| range.contains(time)), "{times:?}");
    let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    assert!(*most - *least > Duration::from_secs(1), "{least:?} to {most:?}");
}

/// A process that got no processor while it compared.
#[test]
fn changes_during_a_long_comparison_are_compared_a_second_later() {
    in_new_namespace(|| {
        let audit = Duration::from_secs(3600);
        let settings =
            Settings { name: "guard", action: GuardAction::Report, audit, patience: Duration::ZERO };
        let rules = Disturbed(apply::Guarded::new(DesiredState::empty()), Duration::from_millis(300));
        let mut guard = Guard::new(rules, settings);
        let change = Change { generation: 2, pid: 7, program: "nft".to_owned(), port: 7, namespace: None };
        guard.wake(&mut Late(Some(change), Vec::new())).unwrap();
        assert!(guard.due() <= Instant::now() + Duration::from_secs(1));
    });
}
