# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The Go types that koord-descheduler decodes from a PodMigrationJob where its CRD does not look.

Taken from the JSON tags of ``k8s.io/api`` v0.28.7 (the one inside Koordinator v1.7.0), its ``apimachinery``, and
``apis/scheduling/v1alpha1`` of Koordinator v1.7.0; embedded types are merged. Each line is a type and its fields;
``[x]`` is a list of x, ``{x}`` a map of texts to x.
"""

from __future__ import annotations

import typing as t

_TABLE = """
AWSElasticBlockStoreVolumeSource: volumeID:str fsType:str partition:int32 readOnly:bool
Affinity: nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAntiAffinity
AzureDiskVolumeSource: diskName:str diskURI:str cachingMode:str fsType:str readOnly:bool kind:str
AzureFileVolumeSource: secretName:str shareName:str readOnly:bool
CSIVolumeSource: driver:str readOnly:bool fsType:str volumeAttributes:{str} nodePublishSecretRef:LocalObjectReference
Capabilities: add:[str] drop:[str]
CephFSVolumeSource: monitors:[str] path:str user:str secretFile:str secretRef:LocalObjectReference readOnly:bool
CinderVolumeSource: volumeID:str fsType:str readOnly:bool secretRef:LocalObjectReference
ClaimSource: resourceClaimName:str resourceClaimTemplateName:str
ConfigMapEnvSource: name:str optional:bool
ConfigMapKeySelector: name:str key:str optional:bool
ConfigMapProjection: name:str items:[KeyToPath] optional:bool
ConfigMapVolumeSource: name:str items:[KeyToPath] defaultMode:int32 optional:bool
Container: name:str image:str command:[str] args:[str] workingDir:str ports:[ContainerPort] envFrom:[EnvFromSource]
  env:[EnvVar] resources:ResourceRequirements resizePolicy:[ContainerResizePolicy] restartPolicy:str
  volumeMounts:[VolumeMount] volumeDevices:[VolumeDevice] livenessProbe:Probe readinessProbe:Probe startupProbe:Probe
  lifecycle:Lifecycle terminationMessagePath:str terminationMessagePolicy:str imagePullPolicy:str
  securityContext:SecurityContext stdin:bool stdinOnce:bool tty:bool
ContainerPort: name:str hostPort:int32 containerPort:int32 protocol:str hostIP:str
ContainerResizePolicy: resourceName:str restartPolicy:str
DeleteOptions: kind:str apiVersion:str gracePeriodSeconds:int64 preconditions:Preconditions orphanDependents:bool
  propagationPolicy:str dryRun:[str]
DownwardAPIProjection: items:[DownwardAPIVolumeFile]
DownwardAPIVolumeFile: path:str fieldRef:ObjectFieldSelector resourceFieldRef:ResourceFieldSelector mode:int32
DownwardAPIVolumeSource: items:[DownwardAPIVolumeFile] defaultMode:int32
EmptyDirVolumeSource: medium:str sizeLimit:quantity
EnvFromSource: prefix:str configMapRef:ConfigMapEnvSource secretRef:SecretEnvSource
EnvVar: name:str value:str valueFrom:EnvVarSource
EnvVarSource: fieldRef:ObjectFieldSelector resourceFieldRef:ResourceFieldSelector configMapKeyRef:ConfigMapKeySelector
  secretKeyRef:SecretKeySelector
EphemeralContainer: name:str image:str command:[str] args:[str] workingDir:str ports:[ContainerPort]
  envFrom:[EnvFromSource] env:[EnvVar] resources:ResourceRequirements resizePolicy:[ContainerResizePolicy]
  restartPolicy:str volumeMounts:[VolumeMount] volumeDevices:[VolumeDevice] livenessProbe:Probe readinessProbe:Probe
  startupProbe:Probe lifecycle:Lifecycle terminationMessagePath:str terminationMessagePolicy:str imagePullPolicy:str
  securityContext:SecurityContext stdin:bool stdinOnce:bool tty:bool targetContainerName:str
EphemeralVolumeSource: volumeClaimTemplate:PersistentVolumeClaimTemplate
ExecAction: command:[str]
FCVolumeSource: targetWWNs:[str] lun:int32 fsType:str readOnly:bool wwids:[str]
FlexVolumeSource: driver:str fsType:str secretRef:LocalObjectReference readOnly:bool options:{str}
FlockerVolumeSource: datasetName:str datasetUUID:str
GCEPersistentDiskVolumeSource: pdName:str fsType:str partition:int32 readOnly:bool
GRPCAction: port:int32 service:str
GitRepoVolumeSource: repository:str revision:str directory:str
GlusterfsVolumeSource: endpoints:str path:str readOnly:bool
HTTPGetAction: path:str port:int_or_str host:str scheme:str httpHeaders:[HTTPHeader]
HTTPHeader: name:str value:str
HostAlias: ip:str hostnames:[str]
HostPathVolumeSource: path:str type:str
ISCSIVolumeSource: targetPortal:str iqn:str lun:int32 iscsiInterface:str fsType:str readOnly:bool portals:[str]
  chapAuthDiscovery:bool chapAuthSession:bool secretRef:LocalObjectReference initiatorName:str
KeyToPath: key:str path:str mode:int32
LabelSelector: matchLabels:{str} matchExpressions:[LabelSelectorRequirement]
LabelSelectorRequirement: key:str operator:str values:[str]
Lifecycle: postStart:LifecycleHandler preStop:LifecycleHandler
LifecycleHandler: exec:ExecAction httpGet:HTTPGetAction tcpSocket:TCPSocketAction
LocalObjectReference: name:str
NFSVolumeSource: server:str path:str readOnly:bool
NodeAffinity: requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
  preferredDuringSchedulingIgnoredDuringExecution:[PreferredSchedulingTerm]
NodeSelector: nodeSelectorTerms:[NodeSelectorTerm]
NodeSelectorRequirement: key:str operator:str values:[str]
NodeSelectorTerm: matchExpressions:[NodeSelectorRequirement] matchFields:[NodeSelectorRequirement]
ObjectFieldSelector: apiVersion:str fieldPath:str
ObjectMeta: name:str generateName:str namespace:str selfLink:str uid:str resourceVersion:str generation:int64
  creationTimestamp:time deletionTimestamp:time deletionGracePeriodSeconds:int64 labels:{str} annotations:{str}
  ownerReferences:[OwnerReference] finalizers:[str] managedFields:[any]
ObjectReference: kind:str namespace:str name:str uid:str apiVersion:str resourceVersion:str fieldPath:str
OwnerReference: apiVersion:str kind:str name:str uid:str controller:bool blockOwnerDeletion:bool
PersistentVolumeClaimSpec: accessModes:[str] selector:LabelSelector resources:ResourceRequirements volumeName:str
  storageClassName:str volumeMode:str dataSource:TypedLocalObjectReference dataSourceRef:TypedObjectReference
PersistentVolumeClaimTemplate: metadata:ObjectMeta spec:PersistentVolumeClaimSpec
PersistentVolumeClaimVolumeSource: claimName:str readOnly:bool
PhotonPersistentDiskVolumeSource: pdID:str fsType:str
PodAffinity: requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
  preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm]
PodAffinityTerm: labelSelector:LabelSelector namespaces:[str] topologyKey:str namespaceSelector:LabelSelector
PodAntiAffinity: requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
  preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm]
PodDNSConfig: nameservers:[str] searches:[str] options:[PodDNSConfigOption]
PodDNSConfigOption: name:str value:str
PodOS: name:str
PodReadinessGate: conditionType:str
PodResourceClaim: name:str source:ClaimSource
PodSchedulingGate: name:str
PodSecurityContext: seLinuxOptions:SELinuxOptions windowsOptions:WindowsSecurityContextOptions runAsUser:int64
  runAsGroup:int64 runAsNonRoot:bool supplementalGroups:[int64] fsGroup:int64 sysctls:[Sysctl] fsGroupChangePolicy:str
  seccompProfile:SeccompProfile
PodSpec: volumes:[Volume] initContainers:[Container] containers:[Container] ephemeralContainers:[EphemeralContainer]
  restartPolicy:str terminationGracePeriodSeconds:int64 activeDeadlineSeconds:int64 dnsPolicy:str nodeSelector:{str}
  serviceAccountName:str serviceAccount:str automountServiceAccountToken:bool nodeName:str hostNetwork:bool
  hostPID:bool hostIPC:bool shareProcessNamespace:bool securityContext:PodSecurityContext
  imagePullSecrets:[LocalObjectReference] hostname:str subdomain:str affinity:Affinity schedulerName:str
  tolerations:[Toleration] hostAliases:[HostAlias] priorityClassName:str priority:int32 dnsConfig:PodDNSConfig
  readinessGates:[PodReadinessGate] runtimeClassName:str enableServiceLinks:bool preemptionPolicy:str
  overhead:{quantity} topologySpreadConstraints:[TopologySpreadConstraint] setHostnameAsFQDN:bool os:PodOS
  hostUsers:bool schedulingGates:[PodSchedulingGate] resourceClaims:[PodResourceClaim]
PodTemplateSpec: metadata:ObjectMeta spec:PodSpec
PortworxVolumeSource: volumeID:str fsType:str readOnly:bool
Preconditions: uid:str resourceVersion:str
PreferredSchedulingTerm: weight:int32 preference:NodeSelectorTerm
Probe: exec:ExecAction httpGet:HTTPGetAction tcpSocket:TCPSocketAction grpc:GRPCAction initialDelaySeconds:int32
  timeoutSeconds:int32 periodSeconds:int32 successThreshold:int32 failureThreshold:int32
  terminationGracePeriodSeconds:int64
ProjectedVolumeSource: sources:[VolumeProjection] defaultMode:int32
QuobyteVolumeSource: registry:str volume:str readOnly:bool user:str group:str tenant:str
RBDVolumeSource: monitors:[str] image:str fsType:str pool:str user:str keyring:str secretRef:LocalObjectReference
  readOnly:bool
ReservationControllerReference: apiVersion:str kind:str name:str uid:str controller:bool blockOwnerDeletion:bool
  namespace:str
ReservationOwner: object:ObjectReference controller:ReservationControllerReference labelSelector:LabelSelector
ReservationSpec: template:PodTemplateSpec owners:[ReservationOwner] ttl:duration expires:time preAllocation:bool
  allocateOnce:bool allocatePolicy:str unschedulable:bool taints:[Taint]
ReservationTemplateSpec: metadata:ObjectMeta spec:ReservationSpec
ResourceClaim: name:str
ResourceFieldSelector: containerName:str resource:str divisor:quantity
ResourceRequirements: limits:{quantity} requests:{quantity} claims:[ResourceClaim]
SELinuxOptions: user:str role:str type:str level:str
ScaleIOVolumeSource: gateway:str system:str secretRef:LocalObjectReference sslEnabled:bool protectionDomain:str
  storagePool:str storageMode:str volumeName:str fsType:str readOnly:bool
SeccompProfile: type:str localhostProfile:str
SecretEnvSource: name:str optional:bool
SecretKeySelector: name:str key:str optional:bool
SecretProjection: name:str items:[KeyToPath] optional:bool
SecretVolumeSource: secretName:str items:[KeyToPath] defaultMode:int32 optional:bool
SecurityContext: capabilities:Capabilities privileged:bool seLinuxOptions:SELinuxOptions
  windowsOptions:WindowsSecurityContextOptions runAsUser:int64 runAsGroup:int64 runAsNonRoot:bool
  readOnlyRootFilesystem:bool allowPrivilegeEscalation:bool procMount:str seccompProfile:SeccompProfile
ServiceAccountTokenProjection: audience:str expirationSeconds:int64 path:str
StorageOSVolumeSource: volumeName:str volumeNamespace:str fsType:str readOnly:bool secretRef:LocalObjectReference
Sysctl: name:str value:str
TCPSocketAction: port:int_or_str host:str
Taint: key:str value:str effect:str timeAdded:time
Toleration: key:str operator:str value:str effect:str tolerationSeconds:int64
TopologySpreadConstraint: maxSkew:int32 topologyKey:str whenUnsatisfiable:str labelSelector:LabelSelector
  minDomains:int32 nodeAffinityPolicy:str nodeTaintsPolicy:str matchLabelKeys:[str]
TypedLocalObjectReference: apiGroup:str kind:str name:str
TypedObjectReference: apiGroup:str kind:str name:str namespace:str
Volume: name:str hostPath:HostPathVolumeSource emptyDir:EmptyDirVolumeSource
  gcePersistentDisk:GCEPersistentDiskVolumeSource awsElasticBlockStore:AWSElasticBlockStoreVolumeSource
  gitRepo:GitRepoVolumeSource secret:SecretVolumeSource nfs:NFSVolumeSource iscsi:ISCSIVolumeSource
  glusterfs:GlusterfsVolumeSource persistentVolumeClaim:PersistentVolumeClaimVolumeSource rbd:RBDVolumeSource
  flexVolume:FlexVolumeSource cinder:CinderVolumeSource cephfs:CephFSVolumeSource flocker:FlockerVolumeSource
  downwardAPI:DownwardAPIVolumeSource fc:FCVolumeSource azureFile:AzureFileVolumeSource
  configMap:ConfigMapVolumeSource vsphereVolume:VsphereVirtualDiskVolumeSource quobyte:QuobyteVolumeSource
  azureDisk:AzureDiskVolumeSource photonPersistentDisk:PhotonPersistentDiskVolumeSource
  projected:ProjectedVolumeSource portworxVolume:PortworxVolumeSource scaleIO:ScaleIOVolumeSource
  storageos:StorageOSVolumeSource csi:CSIVolumeSource ephemeral:EphemeralVolumeSource
VolumeDevice: name:str devicePath:str
VolumeMount: name:str readOnly:bool mountPath:str subPath:str mountPropagation:str subPathExpr:str
VolumeProjection: secret:SecretProjection downwardAPI:DownwardAPIProjection configMap:ConfigMapProjection
  serviceAccountToken:ServiceAccountTokenProjection
VsphereVirtualDiskVolumeSource: volumePath:str fsType:str storagePolicyName:str storagePolicyID:str
WeightedPodAffinityTerm: weight:int32 podAffinityTerm:PodAffinityTerm
WindowsSecurityContextOptions: gmsaCredentialSpecName:str gmsaCredentialSpec:str runAsUserName:str hostProcess:bool
"""


def _read(table: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    fields: dict[str, str] = {}
    for word in table.split():
        name, _colon, kind = word.partition(":")
        if not kind:
            fields = found.setdefault(name, {})
        else:
            fields[name] = kind
    return found


TYPES: t.Mapping[str, t.Mapping[str, str]] = _read(_TABLE)
"""The fields of each type with what they hold."""
