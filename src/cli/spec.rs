//! One row of the table of options.

/// The kind of an option's value, as the config file and the command line need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A boolean: on the command line its name without a value means true.
    Boolean,
    /// Several values, separated by commas.
    List,
    /// A number.
    Number,
    /// A word, a path or a duration.
    Text,
}

/// The group under which `--help` shows an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heading {
    /// The proxy's ports and its user.
    Proxy,
    /// Inbound capture.
    Inbound,
    /// Outbound capture.
    Outbound,
    /// Name resolution.
    Dns,
    /// Network interfaces.
    Interfaces,
    /// IPv4 and IPv6.
    Families,
    /// Who writes to the kernel.
    Backend,
    /// Run options.
    Run,
    /// The probe after applying.
    Validation,
    /// Log lines.
    Logging,
}

impl Heading {
    /// The title of the group.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Proxy => "Proxy",
            Self::Inbound => "Inbound",
            Self::Outbound => "Outbound",
            Self::Dns => "DNS",
            Self::Interfaces => "Interfaces",
            Self::Families => "IP families",
            Self::Backend => "Backend",
            Self::Run => "Run",
            Self::Validation => "Validation",
            Self::Logging => "Logging",
        }
    }
}

/// Environment variables that give an option its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variables {
    /// The flag's name in upper case, `-` as `_`.
    Derived,
    /// The variable of this name first, then the derived one.
    DerivedAfter(&'static str),
    /// None: the flag only.
    None,
    /// Only this one: the option has no flag.
    Only(&'static str),
    /// The derived name behind `ISTIO_IPTABLES_`, so that a pod's `CONFIG` never becomes an input.
    Prefixed,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionSpec {
    /// Flag name without dashes, or the variable's name if there is no flag. Also its key in the config file.
    pub name: &'static str,
    /// One-letter flag.
    pub short: Option<char>,
    /// Another flag name.
    pub alias: Option<&'static str>,
    /// The variables of the option.
    pub variables: Variables,
    /// The placeholder of the value.
    pub kind: Kind,
    /// The group of the option in `--help`.
    pub heading: Heading,
    /// The value that counts when nothing is given; empty for nothing (or false).
    pub default: &'static str,
    /// One sentence for `--help`.
    pub help: &'static str,
    /// The word for the value in `--help`.
    pub value_name: &'static str,
    /// The annotation of a pod from which an injector sets it.
    pub annotation: Option<&'static str>,
    /// The values that shells complete; empty if any text may be one.
    pub words: &'static [&'static str],
}

impl OptionSpec {
    pub(super) const fn new(name: &'static str, kind: Kind, heading: Heading, help: &'static str) -> Self {
        Self {
            name,
            short: None,
            alias: None,
            variables: Variables::Derived,
            kind,
            heading,
            default: "",
            help,
            value_name: match kind {
                Kind::Boolean => "BOOL",
                Kind::List => "LIST",
                Kind::Number => "NUMBER",
                Kind::Text => "TEXT",
            },
            annotation: None,
            words: match kind {
                Kind::Boolean => &["true", "false"],
                Kind::List | Kind::Number | Kind::Text => &[],
            },
        }
    }

    pub(super) const fn short(self, short: char) -> Self {
        Self { short: Some(short), ..self }
    }

    pub(super) const fn alias(self, alias: &'static str) -> Self {
        Self { alias: Some(alias), ..self }
    }

    pub(super) const fn from(self, variables: Variables) -> Self {
        Self { variables, ..self }
    }

    pub(super) const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    pub(super) const fn takes(self, value_name: &'static str) -> Self {
        Self { value_name, ..self }
    }

    pub(super) const fn words(self, words: &'static [&'static str]) -> Self {
        Self { words, ..self }
    }

    pub(super) const fn annotation(self, key: &'static str) -> Self {
        Self { annotation: Some(key), ..self }
    }

    /// Whether there is a flag, not just a variable.
    #[must_use]
    pub const fn has_flag(&self) -> bool {
        !matches!(self.variables, Variables::Only(_))
    }

    /// The names of its variables; the first one that is set wins.
    #[must_use]
    pub fn variable_names(&self) -> Vec<String> {
        let derived = || self.name.to_ascii_uppercase().replace('-', "_");
        match self.variables {
            Variables::Derived => vec![derived()],
            Variables::DerivedAfter(first) => vec![first.to_owned(), derived()],
            Variables::None => Vec::new(),
            Variables::Only(name) => vec![name.to_owned()],
            Variables::Prefixed => vec![format!("ISTIO_IPTABLES_{}", derived())],
        }
    }
}
