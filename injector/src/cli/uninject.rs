//! `uninject`.

use super::args::RewriteArgs;
use super::input::open;
use super::load::load;
use super::rewrite::{Change, rewrite};
use super::{Environment, Failure, Output};
use crate::inject::Request;
use crate::object;
use crate::pod::workload::Workload;

pub(super) fn run(args: &RewriteArgs, environment: &Environment) -> Result<Output, Failure> {
    let mut inputs = open(&args.input)?;
    let loaded = load(&args.injection, environment)?;
    let loaded = loaded.with_proxy_configs(&mut inputs, args.injection.pod.namespace.as_ref())?;
    rewrite(&mut inputs, &args.output, "uninjected", &|object, shape, notes| {
        loaded.check_namespace(object)?;
        let pod = shape.pod(object);
        let workload =
            Workload::of_object(object, loaded.namespace_of(object, args.injection.pod.namespace.as_ref()));
        let request = Request { pod: &pod, workload: &workload, context: &loaded.context };
        let Some(uninjected) = loaded.injector.uninject(request).map_err(|error| error.to_string())? else {
            return Ok(Change::None);
        };
        let title = object::title(object);
        notes.extend(uninjected.left.iter().map(|left| format!("note: {title}: {left}")));
        Ok(Change::Into(Box::new(shape.with(object, uninjected.pod))))
    })
}
