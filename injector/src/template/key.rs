//! What a template reads, as bytes: two pods with the same bytes get the same text.

use gotemplate::{Kind, Reads, Schema};
use serde_json::{Map, Value as Json};

use super::Data;
use crate::pod::ids::Ids;
use crate::schema::{POD, pointee};

impl Data<'_> {
    /// Everything that a rendering depends on besides the config; of the pod, what `reads` has.
    pub(crate) fn key(&self, reads: &Reads) -> Vec<u8> {
        let Self {
            pod,
            workload,
            mesh,
            own_mesh,
            // Of the config, or made of it.
            mesh_json: _,
            values: _,
            revision: _,
            compliance_policy: _,
            native_sidecars,
            proxy_image,
            init_image,
            ids: Ids { uid, gid },
        } = *self;
        let own = (!std::ptr::eq(mesh, own_mesh)).then(|| own_mesh.proxy());
        let mut key = Vec::with_capacity(1024);
        write(&mut key, &(&workload.api_version, &workload.kind, &workload.name, &workload.namespace));
        let config = (own, self.overrides_config());
        write(&mut key, &(native_sidecars, proxy_image, init_image, uid, gid, config));
        for part in ["metadata", "spec"] {
            match (pod.get(part), POD.by_key(part)) {
                (Some(json), Some(field)) => value(&mut key, reads, json, field.kind),
                _ => key.push(b';'),
            }
        }
        key
    }
}

/// Writing to memory does not fail, and all maps have strings as keys.
fn write(key: &mut Vec<u8>, value: &impl serde::Serialize) {
    let _ = serde_json::to_writer(&mut *key, value);
    key.push(b',');
}

/// Of structs the fields that are read, of all else everything. The end of each value is marked: no two
/// different values give the same bytes.
fn value(key: &mut Vec<u8>, reads: &Reads, json: &Json, kind: Kind) {
    match (pointee(kind), json) {
        (Kind::Struct(schema), Json::Object(fields)) => object(key, reads, fields, schema),
        (Kind::List(of @ (Kind::Struct(_) | Kind::Ptr(_))), Json::Array(items)) => {
            key.push(b'[');
            items.iter().for_each(|item| value(key, reads, item, *of));
            key.push(b']');
        }
        _ => write(key, json),
    }
}

fn object(key: &mut Vec<u8>, reads: &Reads, fields: &Map<String, Json>, schema: &'static Schema) {
    let Some(read) = reads.fields(schema) else {
        return write(key, fields);
    };
    key.push(b'{');
    for field in read {
        match fields.get(field.key) {
            Some(json) => value(key, reads, json, field.kind),
            None => key.push(b';'),
        }
    }
    key.push(b'}');
}
