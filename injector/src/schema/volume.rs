//! `Volume` and its sources.

use super::container::{FIELD_SELECTOR, LOCAL_REFERENCE, RESOURCE_FIELD_SELECTOR, RESOURCES};
use super::meta::{LABEL_SELECTOR, OBJECT_META};
use super::{BOOL, INT, QUANTITY, STR, STR_LIST, STR_MAP, Struct, atomic, object};

/// `Volume`; the rare in-tree sources share one struct, since their fields do not clash.
pub(super) static VOLUME: Struct = Struct {
    name: "Volume",
    fields: &[
        ("awsElasticBlockStore", object(&LEGACY_SOURCE)),
        ("azureDisk", object(&LEGACY_SOURCE)),
        ("azureFile", object(&LEGACY_SOURCE)),
        ("cephfs", object(&CEPHFS)),
        ("cinder", object(&LEGACY_SOURCE)),
        ("configMap", object(&CONFIG_MAP)),
        ("csi", object(&CSI)),
        ("downwardAPI", object(&DOWNWARD_API)),
        ("emptyDir", object(&EMPTY_DIR)),
        ("ephemeral", object(&EPHEMERAL)),
        ("fc", object(&LEGACY_SOURCE)),
        ("flexVolume", object(&LEGACY_SOURCE)),
        ("flocker", object(&LEGACY_SOURCE)),
        ("gcePersistentDisk", object(&LEGACY_SOURCE)),
        ("gitRepo", object(&LEGACY_SOURCE)),
        ("glusterfs", object(&LEGACY_SOURCE)),
        ("hostPath", object(&HOST_PATH)),
        ("image", object(&IMAGE)),
        ("iscsi", object(&LEGACY_SOURCE)),
        ("name", STR),
        ("nfs", object(&LEGACY_SOURCE)),
        ("persistentVolumeClaim", object(&CLAIM)),
        ("photonPersistentDisk", object(&LEGACY_SOURCE)),
        ("portworxVolume", object(&LEGACY_SOURCE)),
        ("projected", object(&PROJECTED)),
        ("quobyte", object(&LEGACY_SOURCE)),
        ("rbd", object(&LEGACY_SOURCE)),
        ("scaleIO", object(&LEGACY_SOURCE)),
        ("secret", object(&SECRET)),
        ("storageos", object(&LEGACY_SOURCE)),
        ("vsphereVolume", object(&LEGACY_SOURCE)),
    ],
};

static CONFIG_MAP: Struct = Struct {
    name: "ConfigMapVolumeSource",
    fields: &[
        ("defaultMode", INT),
        ("items", atomic(&object(&KEY_TO_PATH))),
        ("name", STR),
        ("optional", BOOL),
    ],
};

static SECRET: Struct = Struct {
    name: "SecretVolumeSource",
    fields: &[
        ("defaultMode", INT),
        ("items", atomic(&object(&KEY_TO_PATH))),
        ("optional", BOOL),
        ("secretName", STR),
    ],
};

static KEY_TO_PATH: Struct =
    Struct { name: "KeyToPath", fields: &[("key", STR), ("mode", INT), ("path", STR)] };

static CSI: Struct = Struct {
    name: "CSIVolumeSource",
    fields: &[
        ("driver", STR),
        ("fsType", STR),
        ("nodePublishSecretRef", object(&LOCAL_REFERENCE)),
        ("readOnly", BOOL),
        ("volumeAttributes", STR_MAP),
    ],
};

static DOWNWARD_API: Struct = Struct {
    name: "DownwardAPIVolumeSource",
    fields: &[("defaultMode", INT), ("items", atomic(&object(&DOWNWARD_FILE)))],
};

static DOWNWARD_FILE: Struct = Struct {
    name: "DownwardAPIVolumeFile",
    fields: &[
        ("fieldRef", object(&FIELD_SELECTOR)),
        ("mode", INT),
        ("path", STR),
        ("resourceFieldRef", object(&RESOURCE_FIELD_SELECTOR)),
    ],
};

static EMPTY_DIR: Struct =
    Struct { name: "EmptyDirVolumeSource", fields: &[("medium", STR), ("sizeLimit", QUANTITY)] };

static EPHEMERAL: Struct =
    Struct { name: "EphemeralVolumeSource", fields: &[("volumeClaimTemplate", object(&CLAIM_TEMPLATE))] };

static CLAIM_TEMPLATE: Struct = Struct {
    name: "PersistentVolumeClaimTemplate",
    fields: &[("metadata", object(&OBJECT_META)), ("spec", object(&CLAIM_SPEC))],
};

static CLAIM_SPEC: Struct = Struct {
    name: "PersistentVolumeClaimSpec",
    fields: &[
        ("accessModes", STR_LIST),
        ("dataSource", object(&OBJECT_REFERENCE)),
        ("dataSourceRef", object(&OBJECT_REFERENCE)),
        ("resources", object(&RESOURCES)),
        ("selector", object(&LABEL_SELECTOR)),
        ("storageClassName", STR),
        ("volumeAttributesClassName", STR),
        ("volumeMode", STR),
        ("volumeName", STR),
    ],
};

static OBJECT_REFERENCE: Struct = Struct {
    name: "TypedObjectReference",
    fields: &[("apiGroup", STR), ("kind", STR), ("name", STR), ("namespace", STR)],
};

static HOST_PATH: Struct = Struct { name: "HostPathVolumeSource", fields: &[("path", STR), ("type", STR)] };
static IMAGE: Struct =
    Struct { name: "ImageVolumeSource", fields: &[("pullPolicy", STR), ("reference", STR)] };
static CLAIM: Struct =
    Struct { name: "PersistentVolumeClaimVolumeSource", fields: &[("claimName", STR), ("readOnly", BOOL)] };

static PROJECTED: Struct = Struct {
    name: "ProjectedVolumeSource",
    fields: &[("defaultMode", INT), ("sources", atomic(&object(&PROJECTION)))],
};

static PROJECTION: Struct = Struct {
    name: "VolumeProjection",
    fields: &[
        ("clusterTrustBundle", object(&TRUST_BUNDLE)),
        ("configMap", object(&CONFIG_MAP)),
        ("downwardAPI", object(&DOWNWARD_API)),
        ("podCertificate", object(&POD_CERTIFICATE)),
        ("secret", object(&SECRET_PROJECTION)),
        ("serviceAccountToken", object(&TOKEN)),
    ],
};

static SECRET_PROJECTION: Struct = Struct {
    name: "SecretProjection",
    fields: &[("items", atomic(&object(&KEY_TO_PATH))), ("name", STR), ("optional", BOOL)],
};

static TOKEN: Struct = Struct {
    name: "ServiceAccountTokenProjection",
    fields: &[("audience", STR), ("expirationSeconds", INT), ("path", STR)],
};

static TRUST_BUNDLE: Struct = Struct {
    name: "ClusterTrustBundleProjection",
    fields: &[
        ("labelSelector", object(&LABEL_SELECTOR)),
        ("name", STR),
        ("optional", BOOL),
        ("path", STR),
        ("signerName", STR),
    ],
};

static POD_CERTIFICATE: Struct = Struct {
    name: "PodCertificateProjection",
    fields: &[
        ("certificateChainPath", STR),
        ("credentialBundlePath", STR),
        ("keyPath", STR),
        ("keyType", STR),
        ("maxExpirationSeconds", INT),
        ("signerName", STR),
        ("userAnnotations", STR_MAP),
    ],
};

static CEPHFS: Struct = Struct {
    name: "CephFSVolumeSource",
    fields: &[
        ("monitors", STR_LIST),
        ("path", STR),
        ("readOnly", BOOL),
        ("secretFile", STR),
        ("secretRef", object(&LOCAL_REFERENCE)),
        ("user", STR),
    ],
};

static LEGACY_SOURCE: Struct = Struct {
    name: "VolumeSource",
    fields: &[
        ("cachingMode", STR),
        ("chapAuthDiscovery", BOOL),
        ("chapAuthSession", BOOL),
        ("datasetName", STR),
        ("datasetUUID", STR),
        ("directory", STR),
        ("diskName", STR),
        ("diskURI", STR),
        ("driver", STR),
        ("endpoints", STR),
        ("fsType", STR),
        ("gateway", STR),
        ("group", STR),
        ("image", STR),
        ("initiatorName", STR),
        ("iqn", STR),
        ("iscsiInterface", STR),
        ("keyring", STR),
        ("kind", STR),
        ("lun", INT),
        ("monitors", STR_LIST),
        ("options", STR_MAP),
        ("partition", INT),
        ("path", STR),
        ("pdID", STR),
        ("pdName", STR),
        ("pool", STR),
        ("portals", STR_LIST),
        ("protectionDomain", STR),
        ("readOnly", BOOL),
        ("registry", STR),
        ("repository", STR),
        ("revision", STR),
        ("secretName", STR),
        ("secretRef", object(&LOCAL_REFERENCE)),
        ("server", STR),
        ("shareName", STR),
        ("sslEnabled", BOOL),
        ("storageMode", STR),
        ("storagePolicyID", STR),
        ("storagePolicyName", STR),
        ("storagePool", STR),
        ("system", STR),
        ("targetPortal", STR),
        ("targetWWNs", STR_LIST),
        ("tenant", STR),
        ("user", STR),
        ("volume", STR),
        ("volumeID", STR),
        ("volumeName", STR),
        ("volumeNamespace", STR),
        ("volumePath", STR),
        ("wwids", STR_LIST),
    ],
};
