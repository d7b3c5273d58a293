//! `Volume` and its sources. In-tree sources that no current cluster serves share one struct: their fields do
//! not clash.

use super::meta::*;
use super::*;

types! {
    VOLUME "v1.Volume" {
        "name" Name: STR, always; "hostPath" HostPath: pointer(&object(&HOST_PATH));
        "emptyDir" EmptyDir: pointer(&object(&EMPTY_DIR)); "secret" Secret: pointer(&object(&SECRET));
        "nfs" NFS: pointer(&object(&LEGACY_SOURCE));
        "persistentVolumeClaim" PersistentVolumeClaim: pointer(&object(&CLAIM));
        "downwardAPI" DownwardAPI: pointer(&object(&DOWNWARD_API));
        "configMap" ConfigMap: pointer(&object(&CONFIG_MAP)); "projected" Projected: pointer(&object(&PROJECTED));
        "csi" CSI: pointer(&object(&CSI)); "ephemeral" Ephemeral: pointer(&object(&EPHEMERAL));
        "image" Image: pointer(&object(&IMAGE));
        "awsElasticBlockStore" AWSElasticBlockStore: pointer(&object(&LEGACY_SOURCE));
        "azureDisk" AzureDisk: pointer(&object(&LEGACY_SOURCE));
        "azureFile" AzureFile: pointer(&object(&LEGACY_SOURCE)); "cephfs" CephFS: pointer(&object(&CEPHFS));
        "cinder" Cinder: pointer(&object(&LEGACY_SOURCE)); "fc" FC: pointer(&object(&LEGACY_SOURCE));
        "flexVolume" FlexVolume: pointer(&object(&LEGACY_SOURCE));
        "flocker" Flocker: pointer(&object(&LEGACY_SOURCE));
        "gcePersistentDisk" GCEPersistentDisk: pointer(&object(&LEGACY_SOURCE));
        "gitRepo" GitRepo: pointer(&object(&LEGACY_SOURCE)); "glusterfs" Glusterfs: pointer(&object(&LEGACY_SOURCE));
        "iscsi" ISCSI: pointer(&object(&LEGACY_SOURCE));
        "photonPersistentDisk" PhotonPersistentDisk: pointer(&object(&LEGACY_SOURCE));
        "portworxVolume" PortworxVolume: pointer(&object(&LEGACY_SOURCE));
        "quobyte" Quobyte: pointer(&object(&LEGACY_SOURCE)); "rbd" RBD: pointer(&object(&LEGACY_SOURCE));
        "scaleIO" ScaleIO: pointer(&object(&LEGACY_SOURCE)); "storageos" StorageOS: pointer(&object(&LEGACY_SOURCE));
        "vsphereVolume" VsphereVolume: pointer(&object(&LEGACY_SOURCE));
    }
    CONFIG_MAP "v1.ConfigMapVolumeSource" {
        "defaultMode" DefaultMode: INT32_PTR; "items" Items: list(&object(&KEY_TO_PATH)); "name" Name: STR;
        "optional" Optional: BOOL_PTR; "defaultUser" DefaultUser: INT64_PTR;
    }
    SECRET "v1.SecretVolumeSource" {
        "defaultMode" DefaultMode: INT32_PTR; "items" Items: list(&object(&KEY_TO_PATH));
        "optional" Optional: BOOL_PTR; "secretName" SecretName: STR;
        "defaultUser" DefaultUser: INT64_PTR;
    }
    KEY_TO_PATH "v1.KeyToPath" { "key" Key: STR, always; "path" Path: STR, always; "mode" Mode: INT32_PTR; "user" User: INT64_PTR; }
    CSI "v1.CSIVolumeSource" {
        "driver" Driver: STR, always; "fsType" FSType: STR_PTR;
        "nodePublishSecretRef" NodePublishSecretRef: pointer(&object(&LOCAL_REFERENCE));
        "readOnly" ReadOnly: BOOL_PTR; "volumeAttributes" VolumeAttributes: STR_MAP;
    }
    DOWNWARD_API "v1.DownwardAPIVolumeSource" {
        "defaultMode" DefaultMode: INT32_PTR; "items" Items: list(&object(&DOWNWARD_FILE));
        "defaultUser" DefaultUser: INT64_PTR;
    }
    DOWNWARD_FILE "v1.DownwardAPIVolumeFile" {
        "fieldRef" FieldRef: pointer(&object(&FIELD_SELECTOR)); "mode" Mode: INT32_PTR; "path" Path: STR, always;
        "resourceFieldRef" ResourceFieldRef: pointer(&object(&RESOURCE_FIELD_SELECTOR)); "user" User: INT64_PTR;
    }
    EMPTY_DIR "v1.EmptyDirVolumeSource" { "medium" Medium: STR; "sizeLimit" SizeLimit: QUANTITY_PTR; "mode" Mode: INT32_PTR; }
    EPHEMERAL "v1.EphemeralVolumeSource" { "volumeClaimTemplate" VolumeClaimTemplate: pointer(&object(&CLAIM_TEMPLATE)); }
    CLAIM_TEMPLATE "v1.PersistentVolumeClaimTemplate" {
        "metadata" Metadata: object(&OBJECT_META); "spec" Spec: object(&CLAIM_SPEC), always;
    }
    CLAIM_SPEC "v1.PersistentVolumeClaimSpec" {
        "accessModes" AccessModes: STR_LIST; "dataSource" DataSource: pointer(&object(&OBJECT_REFERENCE));
        "dataSourceRef" DataSourceRef: pointer(&object(&OBJECT_REFERENCE)); "resources" Resources: object(&RESOURCES);
        "selector" Selector: pointer(&object(&LABEL_SELECTOR)); "storageClassName" StorageClassName: STR_PTR;
        "volumeAttributesClassName" VolumeAttributesClassName: STR_PTR; "volumeMode" VolumeMode: STR_PTR;
        "volumeName" VolumeName: STR;
    }
    OBJECT_REFERENCE "v1.TypedObjectReference" {
        "apiGroup" APIGroup: STR_PTR; "kind" Kind: STR, always; "name" Name: STR, always;
        "namespace" Namespace: STR_PTR;
    }
    HOST_PATH "v1.HostPathVolumeSource" { "path" Path: STR, always; "type" Type: STR_PTR; }
    IMAGE "v1.ImageVolumeSource" { "pullPolicy" PullPolicy: STR; "reference" Reference: STR; }
    CLAIM "v1.PersistentVolumeClaimVolumeSource" { "claimName" ClaimName: STR, always; "readOnly" ReadOnly: BOOL; }
    PROJECTED "v1.ProjectedVolumeSource" {
        "defaultMode" DefaultMode: INT32_PTR; "sources" Sources: list(&object(&PROJECTION)), always;
        "defaultUser" DefaultUser: INT64_PTR;
    }
    PROJECTION "v1.VolumeProjection" {
        "clusterTrustBundle" ClusterTrustBundle: pointer(&object(&TRUST_BUNDLE));
        "configMap" ConfigMap: pointer(&object(&CONFIG_MAP));
        "downwardAPI" DownwardAPI: pointer(&object(&DOWNWARD_API));
        "podCertificate" PodCertificate: pointer(&object(&POD_CERTIFICATE));
        "secret" Secret: pointer(&object(&SECRET_PROJECTION));
        "serviceAccountToken" ServiceAccountToken: pointer(&object(&TOKEN));
    }
    SECRET_PROJECTION "v1.SecretProjection" {
        "items" Items: list(&object(&KEY_TO_PATH)); "name" Name: STR; "optional" Optional: BOOL_PTR;
    }
    TOKEN "v1.ServiceAccountTokenProjection" {
        "audience" Audience: STR; "expirationSeconds" ExpirationSeconds: INT64_PTR; "path" Path: STR, always;
        "user" User: INT64_PTR;
    }
    TRUST_BUNDLE "v1.ClusterTrustBundleProjection" {
        "labelSelector" LabelSelector: pointer(&object(&LABEL_SELECTOR)); "name" Name: STR_PTR;
        "optional" Optional: BOOL_PTR; "path" Path: STR, always; "signerName" SignerName: STR_PTR;
        "user" User: INT64_PTR;
    }
    POD_CERTIFICATE "v1.PodCertificateProjection" {
        "certificateChainPath" CertificateChainPath: STR; "credentialBundlePath" CredentialBundlePath: STR;
        "keyPath" KeyPath: STR; "keyType" KeyType: STR, always;
        "maxExpirationSeconds" MaxExpirationSeconds: INT32_PTR; "signerName" SignerName: STR, always;
        "userAnnotations" UserAnnotations: STR_MAP; "user" User: INT64_PTR;
    }
    CEPHFS "v1.CephFSVolumeSource" {
        "monitors" Monitors: STR_LIST, always; "path" Path: STR; "readOnly" ReadOnly: BOOL;
        "secretFile" SecretFile: STR; "secretRef" SecretRef: pointer(&object(&LOCAL_REFERENCE)); "user" User: STR;
    }
    LEGACY_SOURCE "v1.VolumeSource" {
        "cachingMode" CachingMode: STR; "chapAuthDiscovery" DiscoveryCHAPAuth: BOOL;
        "chapAuthSession" SessionCHAPAuth: BOOL; "datasetName" DatasetName: STR; "datasetUUID" DatasetUUID: STR;
        "directory" Directory: STR; "diskName" DiskName: STR; "diskURI" DataDiskURI: STR; "driver" Driver: STR;
        "endpoints" Endpoints: STR; "fsType" FSType: STR; "gateway" Gateway: STR; "group" Group: STR;
        "image" Image: STR; "initiatorName" InitiatorName: STR; "iqn" IQN: STR; "iscsiInterface" ISCSIInterface: STR;
        "keyring" Keyring: STR; "kind" Kind: STR; "lun" Lun: INT32; "monitors" Monitors: STR_LIST;
        "options" Options: STR_MAP; "partition" Partition: INT32; "path" Path: STR; "pdID" PdID: STR;
        "pdName" PdName: STR; "pool" Pool: STR; "portals" Portals: STR_LIST; "protectionDomain" ProtectionDomain: STR;
        "readOnly" ReadOnly: BOOL; "registry" Registry: STR; "repository" Repository: STR; "revision" Revision: STR;
        "secretName" SecretName: STR; "secretRef" SecretRef: pointer(&object(&LOCAL_REFERENCE)); "server" Server: STR;
        "shareName" ShareName: STR; "sslEnabled" SSLEnabled: BOOL; "storageMode" StorageMode: STR;
        "storagePolicyID" StoragePolicyID: STR; "storagePolicyName" StoragePolicyName: STR;
        "storagePool" StoragePool: STR; "system" System: STR; "targetPortal" TargetPortal: STR;
        "targetWWNs" TargetWWNs: STR_LIST; "tenant" Tenant: STR; "user" User: STR; "volume" Volume: STR;
        "volumeID" VolumeID: STR; "volumeName" VolumeName: STR; "volumeNamespace" VolumeNamespace: STR;
        "volumePath" VolumePath: STR; "wwids" WWIDs: STR_LIST;
    }
}
