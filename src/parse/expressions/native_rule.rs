//! What nft writes in another form than iptables.

use nfnetlink::nftables::{CtKey, Expression, MetaKey, Operator, PayloadBase};

use super::decode::{half, number, port};
use super::{Loaded, Reader, is_not};

impl Reader {
    /// What only rules that nft wrote consist of.
    #[allow(clippy::wildcard_enum_match_arm, reason = "everything else is read as in a rule of iptables")]
    pub(super) fn native(&mut self, expression: &Expression) -> Option<()> {
        let loaded = match expression {
            Expression::Meta { key: MetaKey::SocketUid, .. } => Loaded::Owner("--uid-owner"),
            Expression::Meta { key: MetaKey::SocketGid, .. } => Loaded::Owner("--gid-owner"),
            Expression::Meta { key: MetaKey::NetworkProtocol, .. } => Loaded::Family,
            Expression::Ct { key: CtKey::Mark, .. } => Loaded::Mark("connmark", u32::MAX, 0),
            Expression::Payload { base: PayloadBase::Transport, offset: 13, length: 1, .. } => {
                Loaded::Flags(u8::MAX)
            }
            Expression::Compare { operator, value, .. } => return self.native_test(*operator, value),
            Expression::Immediate { register, value } => {
                self.constant.clone_from(value);
                self.constants.push((*register, value.clone()));
                self.loaded = None;
                return Some(());
            }
            _ => return self.native_target(expression),
        };
        self.load(loaded)
    }

    /// A test that is the same as in a rule of iptables is read as one of these.
    fn native_test(&mut self, operator: Operator, value: &[u8]) -> Option<()> {
        let is_negated = is_not(operator)?;
        match self.loaded? {
            Loaded::Port("--dport") if is_negated => self.other_ports.push(port(value)?),
            Loaded::Family => self.family_tested(is_negated, &[(value, value)])?,
            Loaded::Interface(..)
            | Loaded::Protocol
            | Loaded::Mark(..)
            | Loaded::Flags(_)
            | Loaded::Owner(_)
            | Loaded::Port(_)
            | Loaded::State(_)
            | Loaded::Address(..)
            | Loaded::MaskedAddress(..)
            | Loaded::AddressType(..)
            | Loaded::ReversePath(_)
            | Loaded::Status(_)
            | Loaded::Direction
            | Loaded::EndAddress(..)
            | Loaded::EndPort(_)
            | Loaded::Random(..) => return None,
        }
        self.loaded = None;
        self.fields.clear();
        Some(())
    }

    fn native_target(&mut self, expression: &Expression) -> Option<()> {
        let target = match (expression, self.loaded) {
            (Expression::SetMeta { key: MetaKey::Mark, .. }, Some(Loaded::Mark("connmark", u32::MAX, 0))) => {
                "-j CONNMARK --restore-mark".to_owned()
            }
            (Expression::SetMeta { key: MetaKey::Mark, .. }, Some(Loaded::Mark("mark", kept, toggled))) => {
                format!("-j MARK --set-xmark {toggled:#x}/{:#x}", !kept)
            }
            (Expression::SetMeta { key: MetaKey::Mark, .. }, None) => {
                format!("-j MARK --set-xmark {:#x}/0xffffffff", number(&self.constant, 0)?)
            }
            (Expression::SetCt { key: CtKey::Mark, .. }, Some(Loaded::Mark("connmark", kept, toggled))) => {
                format!("-j CONNMARK --set-xmark {toggled:#x}/{:#x}", !kept)
            }
            (Expression::SetCt { key: CtKey::Mark, .. }, None) if !self.constant.is_empty() => {
                format!("-j CONNMARK --set-xmark {:#x}/0xffffffff", number(&self.constant, 0)?)
            }
            (Expression::SetCt { key: CtKey::Mark, .. }, Some(Loaded::Mark("mark", u32::MAX, 0))) => {
                "-j CONNMARK --save-mark".to_owned()
            }
            (Expression::SetCt { key: CtKey::Zone, .. }, _) => {
                format!("-j CT --zone {}", half(&self.constant, 0)?)
            }
            _ => return None,
        };
        self.loaded = None;
        self.fields.clear();
        self.constant.clear();
        self.aim(target);
        Some(())
    }

    /// What a foreign rule changes, where it is not read to what.
    pub(super) fn change(&mut self, expression: &Expression) -> Option<()> {
        self.loaded = None;
        self.fields.clear();
        let sets_mark = matches!(
            expression,
            Expression::SetMeta { key: MetaKey::Mark, .. } | Expression::SetCt { key: CtKey::Mark, .. }
        );
        let sets_zone = matches!(expression, Expression::SetCt { key: CtKey::Zone, .. });
        let target = if sets_mark { "-j HMARK" } else { "-j CT --zone mark" };
        (sets_mark || sets_zone).then(|| self.aim(target.to_owned()))
    }
}
